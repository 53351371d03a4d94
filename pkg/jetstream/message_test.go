package jetstream_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/rights"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The headers are a contract with consumers that we do not know.
func TestHeaders(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := message("u_1/item1")
	f.publish(m)
	s, err := f.js.Stream(t.Context(), streamName)
	must(t, err)
	got, err := s.GetMsg(t.Context(), 1)
	must(t, err)
	const when = "2026-01-08T07:10:00.123456Z"
	want := nats.Header{
		"Nats-Msg-Id":    {m.ID},
		"ce-specversion": {"1.0"},
		"ce-id":          {m.ID},
		"ce-type":        {"miniserver.entitlement.v1.EntitlementGranted"},
		"ce-source":      {"/miniserver/entitlement"},
		"ce-subject":     {"u_1/item1"},
		"ce-time":        {when},
		"ce-traceparent": {m.Traceparent},
		"content-type":   {"application/protobuf"},
		"event_type":     {"EntitlementGranted"},
		"aggregate_key":  {"u_1/item1"},
		"occurred_at":    {when},
		"trace_id":       {traceID},
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		// By map access: Header.Get would forgive a capital letter.
		if !slices.Equal(got.Header[name], want[name]) {
			t.Errorf("%s is %q, want %q", name, got.Header[name], want[name])
		}
	}
	for name := range got.Header {
		// Nats-… are instructions to the broker.
		if want[name] == nil && !strings.HasPrefix(name, "Nats-") {
			t.Errorf("unexpected header %s: %q", name, got.Header[name])
		}
	}
	if got.Subject != "entitlement.events" || string(got.Data) != string(m.Data) {
		t.Errorf("subject %s, %d bytes", got.Subject, len(got.Data))
	}
}

// An event without a trace has no empty trace headers.
func TestHeadersWithoutTrace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := message("k")
	m.Traceparent = ""
	f.publish(m)
	h := f.fetch(1)[0].Headers
	if h["ce-traceparent"] != nil || h["trace_id"] != nil {
		t.Errorf("%v", h)
	}
}

// Keys are opaque: whatever they hold arrives, and forges no header.
func TestKeysSurvive(t *testing.T) {
	t.Parallel()
	f := setup(t)
	keys := []string{"u_1/item1", "ユーザー/アイテム🎁", "a\r\nce-type: forged\r\n\r\nb", "100%25 %zz + &", " lead and trail ", "\ttab", `quo"te`, "é\u0000nul", "ümlaut:ö;ä,"}
	var messages []event.Message
	for _, key := range keys {
		messages = append(messages, message(key))
	}
	f.publish(messages...)
	deliveries := f.fetch(len(keys))
	first := deliveries[0]
	for i, d := range deliveries {
		got, want := d.Message, messages[i]
		if got.Key != keys[i] {
			t.Errorf("key %q came as %q", keys[i], got.Key)
		}
		if got.ID != want.ID || got.Type != want.Type || got.Source != want.Source || got.Subject != want.Subject ||
			got.Traceparent != want.Traceparent || !got.Time.Equal(want.Time) || string(got.Data) != string(want.Data) {
			t.Errorf("sent %+v\ncame %+v", want, got)
		}
		if h := d.Headers; len(h["ce-type"]) != 1 || len(h) != len(first.Headers) {
			t.Errorf("%q made headers: %v", keys[i], h)
		}
	}
}

// The same event published again within the window is in the stream once.
func TestDeduplication(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := message("k")
	f.publish(m)
	f.publish(m, m, message("k"))
	s, err := f.js.Stream(t.Context(), streamName)
	must(t, err)
	info, err := s.Info(t.Context())
	must(t, err)
	if info.State.Msgs != 2 {
		t.Errorf("%d messages for 2 events", info.State.Msgs)
	}
}

func TestStreamAndConsumerConfiguration(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	f.fetch(1)
	s, err := f.js.Stream(t.Context(), streamName)
	must(t, err)
	c := s.CachedInfo().Config
	if c.Storage != natsjs.FileStorage || c.Discard != natsjs.DiscardNew || c.MaxAge != 7*24*time.Hour ||
		c.Duplicates != 2*time.Minute || c.Retention != natsjs.LimitsPolicy || c.MaxBytes != limits.MaxBytes || c.NoAck ||
		!slices.Equal(c.Subjects, []string{"entitlement.events"}) {
		t.Errorf("stream %+v", c)
	}
	d := f.pending().Config
	if d.Durable != "notify" || d.AckPolicy != natsjs.AckExplicitPolicy || d.DeliverPolicy != natsjs.DeliverAllPolicy ||
		d.MaxDeliver != -1 || d.DeliverSubject != "" || d.InactiveThreshold != 0 {
		t.Errorf("consumer %+v", d)
	}
}

// A stream that the operator made with other limits is left as it is.
func TestOperatorsStreamIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: streamName, Subjects: []string{"entitlement.events"}, MaxAge: time.Hour, MaxMsgs: 7})
	must(t, err)
	f.publish(message("k"))
	s, err := f.js.Stream(t.Context(), streamName)
	must(t, err)
	if c := s.CachedInfo().Config; c.MaxAge != time.Hour || c.MaxMsgs != 7 {
		t.Errorf("%+v", c)
	}
}

// Time is up before anything was sent: nothing counts as published, or as refused.
func TestPublishWithoutTime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range f.publisher.Publish(ctx, []event.Message{message("k"), message("k")}) {
		if !errors.Is(err, outbox.ErrBroker) {
			t.Errorf("%v", err)
		}
	}
}

// A subject that no stream takes must not look published.
func TestPublishWithoutStream(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := message("k")
	m.Subject = "nobody.events"
	for i, err := range f.publisher.Publish(t.Context(), []event.Message{m, message("k")}) {
		if i == 0 && !errors.Is(err, outbox.ErrBroker) || i == 1 && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// Nor must one that only a stream of somebody else takes: no consumer of ours would get it.
func TestPublishIntoAForeignStream(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	must(t, f.js.DeleteStream(t.Context(), streamName))
	foreign := natsjs.StreamConfig{Name: "FOREIGN", Subjects: []string{"entitlement.>"}}
	_, err := f.js.CreateStream(t.Context(), foreign)
	must(t, err)
	if err := f.publisher.Publish(t.Context(), []event.Message{message("k")})[0]; !errors.Is(err, outbox.ErrBroker) {
		t.Errorf("a message that only a foreign stream took: %v, want ErrBroker", err)
	}
}

// A stream that cannot be made holds up its own subject only.
func TestForeignStreamHoldsUpItsSubjectOnly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "FOREIGN", Subjects: []string{"matchmaking.>"}})
	must(t, err)
	if err := jetstream.NewPublisher(f.client, event.MatchmakingSubject).Ready(t.Context()); err == nil {
		t.Fatal("the subject of the foreign stream is ready; this test shows nothing")
	}
	must(t, f.publisher.Ready(t.Context()))
	f.publish(message("k"))
	f.fetch(1)
}

// An acknowledgement that never comes holds up the others for seconds, not for a lease.
func TestLostPublishAcknowledgement(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	// Somebody takes the messages and acknowledges none.
	must(t, f.js.DeleteStream(t.Context(), streamName))
	silent, err := f.js.Conn().SubscribeSync("entitlement.events")
	must(t, err)
	must(t, f.js.Conn().Flush())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := f.publisher.Publish(ctx, []event.Message{message("k")})[0]; !errors.Is(err, outbox.ErrBroker) || ctx.Err() != nil {
		t.Errorf("%v, context: %v; want ErrBroker before the context ends", err, ctx.Err())
	}
	if n, _, _ := silent.Pending(); n != 1 {
		t.Errorf("%d messages were sent; this test shows nothing", n)
	}
}

var _ outbox.Publisher = (*jetstream.Publisher)(nil)

// A stream whose making JetStream does not answer, as where a right is missing, holds up
// no other subject meanwhile.
func TestSilenceHoldsUpItsSubjectOnly(t *testing.T) {
	t.Parallel()
	user := rights.Rights{Publishes: []string{event.EntitlementSubject}}
	client := jetstream.New(kit.NATS(t, map[string]rights.Rights{"relay": user}).URLAs("relay"), "test", limits)
	t.Cleanup(client.Close)
	silent := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, jetstream.NewPublisher(client, event.EntitlementSubject).Ready(ctx)) // connected
	go func() { silent <- jetstream.NewPublisher(client, event.MatchmakingSubject).Ready(ctx) }()
	for range 20 {
		if err := jetstream.NewPublisher(client, event.EntitlementSubject).Publish(ctx, []event.Message{message("k")})[0]; err != nil {
			t.Fatalf("beside a stream that is not answered: %v", err)
		}
		must(t, client.Ready(ctx))
	}
	select {
	case err := <-silent:
		t.Errorf("the other stream was answered: %v; this test shows nothing", err)
	default:
	}
	cancel()
	if err := <-silent; err == nil {
		t.Error("a stream that cannot be made is ready")
	}
}
