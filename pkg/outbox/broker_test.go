package outbox_test

import (
	"maps"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/test/kit"
)

func newMsg(subject string, header nats.Header, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: maps.Clone(header), Data: data}
}

// The broker stops and comes back, with its data or without. Events that were committed
// meanwhile are published, none becomes FAILED, and no attempt is used up.
func TestBrokerRestarted(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"kept", "deleted"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			n, dir := startNATS(t)
			relay := f.natsRelay(n.URL(), limits)
			first := f.insert(5)
			if report := f.step(relay); report.Done != 5 {
				t.Fatalf("before the stop the step reported %+v, want 5 done", report)
			}
			var second []string
			restart(t, n, dir, func() {
				for _, id := range f.insert(300) {
					second = append(second, id.String())
				}
				for range 12 {
					if _, err := relay.Step(f.ctx); fault.Of(err) != fault.Unavailable {
						t.Fatalf("while the broker is away: %v, want Unavailable", err)
					}
				}
				if n := f.count("status = 'PENDING' AND attempt_count = 0"); n != 300 {
					t.Fatalf("%d of 300 rows untouched while it was away", n)
				}
				if store == "deleted" {
					deleteStore(t, dir)
				}
			})
			kit.Eventually(t, "all is published", func() bool {
				_, _ = relay.Step(f.ctx) // the client reconnects in its own time
				f.due()
				return f.count("status = 'PUBLISHED'") == 305
			})
			if n := f.count("attempt_count > 1 OR status = 'FAILED'"); n != 0 {
				t.Errorf("%d rows used more than one attempt, or failed", n)
			}
			found := stored(t, broker(t, n.URL()))
			for _, id := range second {
				if found[id] != 1 {
					t.Errorf("%s is in the stream %d times, want 1", id, found[id])
				}
			}
			if store == "kept" && found[first[0].String()] != 1 {
				t.Errorf("an event that was published before is gone")
			}
		})
	}
}

// While a stream is full the relay retries: no event is lost or FAILED, and all are
// published when there is room.
func TestFullStream(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n, _ := startNATS(t)
	small := limits
	small.MaxBytes = 16 << 10
	relay := f.natsRelay(n.URL(), small)
	ids := f.insert(100)
	js := broker(t, n.URL())
	found := map[string]int{}
	for round := range 20 {
		// The stream stays full for more steps than a row has attempts.
		for range 3 {
			f.step(relay)
			f.due()
		}
		if n := f.count("status = 'FAILED'"); n != 0 {
			t.Fatalf("round %d: %d rows are FAILED, want none", round, n)
		}
		published := f.count("status = 'PUBLISHED'")
		for id, times := range stored(t, js) {
			found[id] += times
		}
		if len(found) < published {
			t.Fatalf("round %d: %d rows are PUBLISHED, but only %d were in the stream", round, published, len(found))
		}
		if published == len(ids) {
			if round == 0 {
				t.Fatal("the stream was never full, so this test shows nothing")
			}
			break
		}
		if round == 0 {
			if published == 0 {
				t.Fatal("not even one event fits into the stream")
			}
			for range 15 {
				f.due()
				if report := f.step(relay); report.More {
					t.Fatalf("a full stream is asked again at once: %+v", report)
				}
			}
		}
		s, err := js.Stream(f.ctx, stream)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(f.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if found[id.String()] == 0 {
			t.Errorf("%s is lost", id)
		}
	}
	if n := f.count("status = 'PUBLISHED' AND attempt_count = 1"); n != len(ids) {
		t.Errorf("%d of %d rows were published at their first attempt, want all", n, len(ids))
	}
}

// A message that the broker can never take is FAILED at once, and no other is.
func TestMessageTooLarge(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n, _ := startNATS(t)
	ids := f.insert(3)
	f.exec(`UPDATE `+table+` SET payload = jsonb_set(payload, '{source}', to_jsonb(repeat('x', 2000000))) WHERE event_id = $1`, ids[1])
	if report := f.step(f.natsRelay(n.URL(), limits)); report.Done != 2 || report.Dead != 1 {
		t.Errorf("the step reported %+v, want 2 done and 1 dead", report)
	}
	if r := f.row(ids[1]); r.Status != "FAILED" || r.Attempts != 1 {
		t.Errorf("the row is %+v, want FAILED at the first attempt", r)
	}
}

// The stream is deleted while the relay is connected: the next step creates it again.
func TestStreamDeleted(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n, _ := startNATS(t)
	relay := f.natsRelay(n.URL(), limits)
	f.insert(1)
	f.step(relay)
	if err := broker(t, n.URL()).DeleteStream(f.ctx, stream); err != nil {
		t.Fatal(err)
	}
	f.insert(5)
	kit.Eventually(t, "all is published", func() bool {
		f.step(relay)
		f.due()
		return f.count("status = 'PUBLISHED'") == 6
	})
	if n := f.count("attempt_count <> 1"); n != 0 {
		t.Errorf("%d rows used more than one attempt", n)
	}
}
