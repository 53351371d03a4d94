package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The publisher's answer decides what becomes of the row.
func TestPublishErrors(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(4)
	answers := map[string]error{
		ids[0].String(): nil,
		ids[1].String(): fmt.Errorf("%w: away", outbox.ErrBroker),
		ids[2].String(): fmt.Errorf("%w: too large", outbox.ErrRefused),
		ids[3].String(): errors.New("something else"),
	}
	report := f.step(f.relay(publisher{publish: func(_ context.Context, m []event.Message) []error {
		var results []error
		for _, message := range m {
			results = append(results, answers[message.ID])
		}
		return results
	}}))
	want := lease.Report{Claimed: 4, Done: 1, Retried: 2, Dead: 1}
	if report != want {
		t.Errorf("the step reported %+v, want %+v", report, want)
	}
	for i, want := range []struct {
		status   string
		attempts int
		notDue   bool
		reason   string
	}{
		{"PUBLISHED", 1, false, ""},
		{"PENDING", 0, true, "away"},
		{"FAILED", 1, false, "too large"},
		{"PENDING", 1, true, "something else"},
	} {
		r := f.row(ids[i])
		reason := ""
		if r.Error != nil {
			reason = *r.Error
		}
		if r.Status != want.status || r.Attempts != want.attempts || r.NotDue != want.notDue || !strings.Contains(reason, want.reason) {
			t.Errorf("row %d: %+v (%s), want %+v", i, r, reason, want)
		}
	}
}

// A row whose payload cannot be parsed is FAILED at once; the other 199 of its batch are
// published.
func TestUnparsablePayload(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for name, damage := range map[string]string{
		"a list":                       `payload = '[]'`,
		"a string":                     `payload = '"text"'`,
		"JSON null":                    `payload = 'null'`,
		"a field of wrong type":        `payload = jsonb_set(payload, '{version}', '{"n": 1}')`,
		"a version that is no integer": `payload = jsonb_set(payload, '{version}', '1.5')`,
		"unknown type":                 `event_type = 'EntitlementLent'`,
		"another event's id":           `payload = jsonb_set(payload, '{event_id}', '"4c2f8d0e-0000-7000-8000-000000000000"')`,
		"no event_id":                  `payload = payload - 'event_id'`,
	} {
		f.exec(`TRUNCATE ` + table)
		ids := f.insert(200)
		f.exec(`UPDATE `+table+` SET `+damage+` WHERE event_id = $1`, ids[100])
		report := f.step(f.relay(publisher{publish: takeAll}))
		if report.Done != 199 || report.Dead != 1 || report.Claimed != 200 {
			t.Errorf("%s: the step reported %+v, want 199 of 200 done and 1 dead", name, report)
		}
		r := f.row(ids[100])
		if r.Status != "FAILED" || r.Attempts != 1 || r.Error == nil {
			t.Errorf("%s: the row is %+v, want FAILED at the first attempt", name, r)
		}
	}
}

// While the broker is away nothing is claimed, so that no attempt is used up.
func TestBrokerAwayClaimsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.insert(3)
	relay := f.relay(publisher{ready: errors.New("away"), publish: func(_ context.Context, m []event.Message) []error {
		t.Errorf("%d messages published", len(m))
		return make([]error, len(m))
	}})
	for range 15 {
		if _, err := relay.Step(f.ctx); fault.Of(err) != fault.Unavailable {
			t.Fatalf("Step: %v, want Unavailable", err)
		}
	}
	if n := f.count("status = 'PENDING' AND attempt_count = 0 AND locked_at IS NULL"); n != 3 {
		t.Errorf("%d of 3 rows are untouched, want all", n)
	}
}

// A row whose worker was killed at the last attempt is given up by the next one.
func TestCrashOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(2)
	f.exec(`UPDATE `+table+` SET status = 'IN_FLIGHT', attempt_count = $2, claim_size = 1, claim_token = gen_random_uuid(), lease_until = now()
		WHERE event_id = $1`, ids[0], lease.DefaultPolicy.MaxAttempts)
	var published []string
	relay := f.relay(publisher{publish: func(_ context.Context, m []event.Message) []error {
		for _, message := range m {
			published = append(published, message.ID)
		}
		return make([]error, len(m))
	}})
	if report := f.step(relay); report.Dead != 1 || report.Done != 0 || !report.More {
		t.Errorf("for the row that was left behind the step reported %+v, want 1 dead and more", report)
	}
	if report := f.step(relay); report.Done != 1 {
		t.Errorf("for the other row the step reported %+v, want 1 done", report)
	}
	if r := f.row(ids[0]); r.Status != "FAILED" || r.Attempts != lease.DefaultPolicy.MaxAttempts || *r.Error != lease.ErrExhausted.Error() {
		t.Errorf("the row is %+v, want FAILED with %q", r, lease.ErrExhausted)
	}
	if len(published) != 1 || published[0] != ids[1].String() {
		t.Errorf("published %v, want only %s", published, ids[1])
	}
}

// A worker sleeps longer than its lease while it publishes. Another one takes its rows,
// and still holds them or is done. The sleeper overwrites nothing, and reports the lost
// lease.
func TestPausedLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for _, successor := range []string{"holds", "done"} {
		for name, answer := range map[string]error{"published": nil, "broker away": outbox.ErrBroker, "refused": outbox.ErrRefused, "failed": errors.New("failed")} {
			t.Run(successor+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				ids := f.insert(1)
				first, second := f.paused(answer), (*pausedRelay)(nil)
				f.due()
				want := "PUBLISHED"
				if successor == "holds" {
					second, want = f.paused(nil), "IN_FLIGHT"
				} else if report := f.step(f.relay(publisher{publish: takeAll})); report.Done != 1 {
					t.Errorf("the successor reported %+v, want 1 done", report)
				}
				if report := first.wake(t); report != (lease.Report{Claimed: 1, LostLease: 1}) {
					t.Errorf("the sleeper reported %+v, want Claimed: 1, LostLease: 1", report)
				}
				for _, id := range ids {
					if r := f.row(id); r.Status != want || r.Attempts != 2 {
						t.Errorf("the sleeper overwrote the row: %+v, want %s at attempt 2", r, want)
					}
				}
				if second != nil {
					if report := second.wake(t); report != (lease.Report{Claimed: 1, Done: 1, More: true}) {
						t.Errorf("the successor reported %+v, want Claimed: 1, Done: 1, More: true", report)
					}
				}
			})
		}
	}
}

// pausedRelay is a relay that sleeps while it publishes.
type pausedRelay struct {
	awake chan struct{}
	ended chan lease.Report
}

// paused starts a relay and returns when it sleeps. Once woken, its publisher answers each
// message with answer.
func (f *fixture) paused(answer error) *pausedRelay {
	f.t.Helper()
	p := &pausedRelay{make(chan struct{}), make(chan lease.Report, 1)}
	asleep := make(chan struct{})
	relay := f.relay(publisher{publish: func(_ context.Context, m []event.Message) []error {
		close(asleep)
		<-p.awake
		results := make([]error, len(m))
		for i := range results {
			results[i] = answer
		}
		return results
	}})
	go func() {
		report, err := relay.Step(f.ctx)
		if err != nil {
			f.t.Error(err)
		}
		p.ended <- report
	}()
	<-asleep
	return p
}

func (p *pausedRelay) wake(t testing.TB) lease.Report {
	t.Helper()
	close(p.awake)
	return <-p.ended
}

// The context of publishing ends well before the lease does.
func TestPublishingHasADeadline(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.insert(1)
	f.step(f.relay(publisher{publish: func(ctx context.Context, m []event.Message) []error {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > lease.DefaultPolicy.Lease*3/4 {
			t.Errorf("publishing may take %s of %s", left, lease.DefaultPolicy.Lease)
		}
		return make([]error, len(m))
	}}))
}

// The end of a tick cuts publishing short; the rows' outcomes are still recorded.
func TestTickEndsWhilePublishing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.insert(2)
	ctx, cancel := context.WithCancel(f.ctx)
	report, err := f.relay(publisher{publish: func(ctx context.Context, m []event.Message) []error {
		cancel()
		<-ctx.Done()
		return []error{nil, fmt.Errorf("%w: %w", outbox.ErrBroker, ctx.Err())}
	}}).Step(ctx)
	if err != nil || report.Done != 1 || report.Retried != 1 {
		t.Fatalf("the step reported %+v, %v; want 1 done and 1 retried", report, err)
	}
	if done, back := f.count("status = 'PUBLISHED'"), f.count("status = 'PENDING' AND attempt_count = 0"); done != 1 || back != 1 {
		t.Errorf("%d rows are PUBLISHED and %d PENDING without an attempt, want 1 each", done, back)
	}
}

// One event kills each worker that publishes it. The other 199 are published.
func TestEventThatKillsItsRelay(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(200)
	bad := ids[100].String()
	relay := f.relay(publisher{publish: func(_ context.Context, m []event.Message) []error {
		for _, message := range m {
			if message.ID == bad {
				panic("killed")
			}
		}
		return make([]error, len(m))
	}})
	steps := 0
	// All rows must finish: the bad one may be FAILED before all others had a turn.
	for f.count("finished_at IS NULL") > 0 {
		if steps++; steps > 60 {
			t.Fatalf("after %d steps %d of 199 good events are published, %d FAILED", steps, f.count("status = 'PUBLISHED'"), f.count("status = 'FAILED'"))
		}
		func() {
			defer func() {
				if recover() != nil {
					f.due() // its lease ends
				}
			}()
			f.step(relay)
		}()
	}
	if n := f.count("status = 'PUBLISHED'"); n != 199 || f.row(ids[100]).Status != outbox.Failed {
		t.Errorf("%d of 199 good events are published, the bad one is %s", n, f.row(ids[100]).Status)
	}
}

// Events that the stream of their subject cannot take hold up no other subject of the same
// outbox.
func TestBlockedSubjectHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := setup(t)
	blocked := config(f.pool, publisher{publish: func(_ context.Context, m []event.Message) []error {
		results := make([]error, len(m))
		for i := range results {
			results[i] = outbox.ErrBroker
		}
		return results
	}})
	blocked.Where = `event_type <> 'EntitlementRevoked'`
	free := config(f.pool, publisher{publish: func(_ context.Context, m []event.Message) []error { return make([]error, len(m)) }})
	free.Where = `event_type = 'EntitlementRevoked'`
	f.insert(1000)
	last := f.insert(1)[0]
	f.exec(`UPDATE `+table+` SET event_type = 'EntitlementRevoked', payload = jsonb_set(payload, '{event_type}', '"EntitlementRevoked"') WHERE event_id = $1`, last)
	if report := f.step(outbox.NewRelay(blocked)); report.Retried != lease.DefaultPolicy.Batch || report.Done != 0 {
		t.Fatalf("the relay of the blocked subject reported %+v, want all retried", report)
	}
	if report := f.step(outbox.NewRelay(free)); report.Claimed != 1 || report.Done != 1 {
		t.Errorf("an event of another subject behind 1,000 blocked ones: %+v, want it published at once", report)
	}
	if r := f.row(last); r.Status != outbox.Published {
		t.Errorf("the row of the other subject is %+v, want PUBLISHED", r)
	}
}

// lossy is a consumer that has only what arrived.
type lossy struct{ arrived map[uuid.UUID]bool }

func (l lossy) Missing(_ context.Context, ids []uuid.UUID) (missing []uuid.UUID, err error) {
	for _, id := range ids {
		if !l.arrived[id] {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

func (lossy) Caught(context.Context, time.Duration) (bool, error) { return true, nil }

// A lost event that the broker refuses for ever keeps no other lost event from being
// published again.
func TestRefusedIsPassed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(501) // two batches
	f.exec(`UPDATE ` + table + ` SET status = 'PUBLISHED', finished_at = now()`)
	consumer := lossy{map[uuid.UUID]bool{}}
	for _, id := range ids[1:500] {
		consumer.arrived[id] = true
	}
	r := outbox.NewReconciler(outbox.ReconcilerConfig{
		Pool: f.pool, Table: table, Marks: entitlement.ReconciledTable, Name: "test", Consumer: consumer, Log: slog.New(slog.DiscardHandler),
		Publisher: publisher{publish: func(_ context.Context, m []event.Message) []error {
			results := make([]error, len(m))
			for i, message := range m {
				if message.ID == ids[0].String() {
					results[i] = outbox.ErrRefused
				} else {
					consumer.arrived[uuid.MustParse(message.ID)] = true
				}
			}
			return results
		}},
	})
	kit.Eventually(t, "the last event arrives", func() bool {
		_, err := r.Step(t.Context())
		kit.Must(t, err)
		return consumer.arrived[ids[500]]
	})
}
