package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

func (s *suite) arrivesAsItWas() {
	sent := s.message("t_1/ä")
	s.publish(sent)
	got := s.fetch(1)[0]
	if fmt.Sprint(got.Message) != fmt.Sprint(sent) || got.Delivered != 1 {
		s.Errorf("sent %+v\ngot  %+v (%d)", sent, got.Message, got.Delivered)
	}
}

// Headers are a contract with consumers that are not ours.
func (s *suite) headers() {
	sent := s.message("t_1/ä")
	s.publish(sent)
	got := s.fetch(1)[0].Headers
	const when = "2026-01-08T07:10:00.123456Z"
	want := map[string]string{
		"ce-specversion": "1.0", "ce-id": sent.ID, "ce-type": sent.Type, "ce-source": sent.Source, "ce-subject": "t_1/%C3%A4", "ce-time": when,
		"ce-traceparent": sent.Traceparent, "trace_id": traceID, "content-type": "application/protobuf",
		"event_type": "TransferCompleted", "aggregate_key": "t_1/%C3%A4", "occurred_at": when,
	}
	for name, value := range want {
		if !slices.Equal(got[name], []string{value}) {
			s.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	for name := range got {
		if want[name] == "" && !strings.HasPrefix(name, "Nats-") && !strings.HasPrefix(name, "x-") { // added by the broker
			s.Errorf("unexpected header %s: %q", name, got[name])
		}
	}
}

func (s *suite) withoutTrace() {
	sent := s.message("k")
	sent.Traceparent = ""
	s.publish(sent)
	if h := s.fetch(1)[0].Headers; h["ce-traceparent"] != nil || h["trace_id"] != nil {
		s.Errorf("headers %v, want none of a trace", h)
	}
}

// Any key arrives unchanged, and forges no header.
func (s *suite) keysAreOpaque() {
	var sent []event.Message
	for _, key := range []string{
		"u_1/item1", "ユーザー/アイテム🎁", "a\r\nce-type: forged\r\n\r\nb", "100%25 %zz + &", " lead and trail ", "\ttab", `quo"te`, "é\u0000nul", "ümlaut:ö;ä,",
	} {
		sent = append(sent, s.message(key))
	}
	s.publish(sent...)
	got := s.fetch(len(sent))
	for i, d := range got {
		if fmt.Sprint(d.Message) != fmt.Sprint(sent[i]) {
			s.Errorf("sent %+v\ncame %+v", sent[i], d.Message)
		}
		if len(d.Headers["ce-type"]) != 1 || len(d.Headers) != len(got[0].Headers) {
			s.Errorf("the key %q forged headers: %v", sent[i].Key, d.Headers)
		}
	}
}

func (s *suite) fetchWithinLimit() {
	sent := s.messages(500)
	s.publish(sent[:300]...)
	s.publish(sent[300:]...)
	for next := 0; next < len(sent); {
		got, err := s.Consumer.Fetch(s.Context(), 200)
		kit.Must(s, err)
		if len(got) == 0 || len(got) > 200 {
			s.Fatalf("a batch of %d messages after %d", len(got), next)
		}
		for _, d := range got {
			if d.Message.ID != sent[next].ID {
				s.Fatalf("message %d is out of order", next)
			}
			kit.Must(s, d.Ack())
			next++
		}
	}
	s.fetch(0)
}

func (s *suite) dealtWith() {
	s.publish(s.message("done"), s.message("never"), s.message("again"))
	got := s.fetch(3)
	kit.Must(s, got[0].Ack())
	kit.Must(s, got[1].Terminate("poison"))
	kit.Must(s, got[2].Again(0)) // proves that the others would have come too
	again := s.fetch(1)[0]
	if again.Message.ID != got[2].Message.ID {
		s.Errorf("%s came again, want only the one that was returned", again.Message.Key)
	}
	kit.Must(s, again.Ack())
	s.caught(0, true)
}

func (s *suite) again() {
	const after = 300 * time.Millisecond
	s.publish(s.message("later"))
	first := s.fetch(1)[0]
	began := time.Now()
	kit.Must(s, first.Again(after))
	again := s.fetch(1)[0]
	if took := time.Since(began); again.Message.ID != first.Message.ID || again.Delivered != 2 || took < after {
		s.Errorf("%s came, delivery %d, after %s", again.Message.Key, again.Delivered, took)
	}
}

// RabbitMQ 4 has a default limit of 20.
func (s *suite) withoutLimit() {
	s.publish(s.message("k"))
	for n := range uint64(30) {
		got := s.fetch(1)[0]
		if s.Counts && got.Delivered != n+1 || got.Delivered > n+1 {
			s.Fatalf("delivered %d times, want %d", got.Delivered, n+1)
		}
		kit.Must(s, got.Again(0))
	}
}

func (s *suite) nobodyTakes() {
	nowhere := s.message("k")
	nowhere.Subject = "nobody." + uuid.NewString()
	results := s.Publisher.Publish(s.Context(), []event.Message{s.message("a"), nowhere, s.message("b")})
	if results[0] != nil || !errors.Is(results[1], outbox.ErrBroker) || results[2] != nil {
		s.Errorf("the results are %v, want an error for the second only", results)
	}
	s.fetch(2)
}

// Time is up before publishing begins: nothing counts as published or as refused, and the
// connection that others use stays open.
func (s *suite) withoutTime() {
	s.publish(s.message("k"))
	held := s.fetch(1)[0]
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for _, err := range s.Publisher.Publish(ctx, s.messages(2)) {
		if !errors.Is(err, outbox.ErrBroker) {
			s.Errorf("published: %v", err)
		}
	}
	if _, err := s.Consumer.Fetch(ctx, 1); fault.Of(err) != fault.Unavailable {
		s.Errorf("fetched: %v", err)
	}
	kit.Must(s, held.Ack())
	s.publish(s.message("k"))
	s.fetch(1)
}

func (s *suite) caught(age time.Duration, want bool) {
	s.Helper()
	// An acknowledgement may be on its way.
	kit.Eventually(s, fmt.Sprintf("caught up with what is older than %s: %t", age, want), func() bool {
		got, err := s.Consumer.Caught(s.Context(), age)
		kit.Must(s, err)
		return got == want
	})
}

func (s *suite) caughtUp() {
	s.caught(0, true)
	s.publish(s.message("k"))
	s.caught(time.Hour, true)
	s.caught(0, false)
	kit.Must(s, s.fetch(1)[0].Ack())
	s.caught(0, true)
}

func (s *suite) away() {
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	if err := s.Away.Publisher.Ready(ctx); err == nil {
		s.Error("ready without a broker")
	}
	for _, err := range s.Away.Publisher.Publish(ctx, s.messages(2)) {
		if !errors.Is(err, outbox.ErrBroker) {
			s.Errorf("published without a broker: %v", err)
		}
	}
	if _, err := s.Away.Consumer.Fetch(ctx, 1); fault.Of(err) != fault.Unavailable {
		s.Errorf("fetched without a broker: %v", err)
	}
	if _, err := s.Away.Consumer.Caught(ctx, 0); fault.Of(err) != fault.Unavailable {
		s.Errorf("caught up without a broker: %v", err)
	}
}
