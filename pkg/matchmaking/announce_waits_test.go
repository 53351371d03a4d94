package matchmaking_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A match that the broker does not take is published again after two seconds, not after
// the whole lease.
func TestBrokerTakesNothing(t *testing.T) {
	f := startAnnouncing(t)
	games := f.playMany("rank", 2)
	f.carrier.publish = func(_ context.Context, messages []event.Message) []error {
		errs := make([]error, len(messages))
		for i := range errs {
			errs[i] = fmt.Errorf("%w: away", outbox.ErrBroker)
		}
		return errs
	}
	a := f.worker("a")
	if report := f.step(a); report != (lease.Report{Claimed: 2, Retried: 2}) || f.wakes != 0 {
		t.Errorf("the step reported %+v, want Claimed: 2, Retried: 2; %d wakes, want none", report, f.wakes)
	}
	pending := f.claimed("rank")
	if len(pending) != 1 || pending[0].Idle < 13*time.Second || pending[0].Idle > 15*time.Second {
		t.Fatalf("pending are %+v, want one that is 13s to 15s idle", pending)
	}
	f.carrier.publish = nil
	f.leasesEnd("rank")
	if report := f.step(a); report != (lease.Report{Claimed: 2, Done: 2}) {
		t.Errorf("the step reported %+v, want Claimed: 2, Done: 2", report)
	}
	for _, g := range games {
		f.isAnnounced(g)
	}
}

// While the broker is away no match is claimed, and no server is asked for.
func TestBrokerAway(t *testing.T) {
	f := startAnnouncing(t)
	a := f.worker("a")
	f.step(a)
	g := f.play("casual")
	kit.Must(t, f.nats.Stop())
	kit.Eventually(t, "the client notices", func() bool { return f.carrier.Ready(t.Context()) != nil })
	for range 3 {
		var away *fault.Error
		if report, err := a.Step(t.Context()); !errors.As(err, &away) || away.Kind != fault.Unavailable || report != (lease.Report{}) {
			t.Errorf("the step reported %+v and %v, want nothing and Unavailable", report, err)
		}
	}
	if len(f.claimed("casual")) != 0 || f.servers.times(g.id) != 0 {
		t.Errorf("claimed are %v, asked for a server %d times, want neither", f.claimed("casual"), f.servers.times(g.id))
	}
	f.startNATS()
	kit.Eventually(t, "the match is announced", func() bool {
		report, _ := a.Step(t.Context()) // the client connects in its own time
		return report.Done == 1
	})
	f.isAnnounced(g)
}

// While no server is free a match waits, but the other matches of its entry are announced,
// once. When patience is over it is announced without a server, for good.
func TestNoServer(t *testing.T) {
	f := startAnnouncing(t)
	games := f.playMany("casual", 3)
	poor := games[1]
	none := func(m matchmaking.Match) error {
		if m.ID == poor.id {
			return fmt.Errorf("fleet: %w", matchmaking.ErrNoServer)
		}
		return nil
	}
	f.servers.set(none)
	a := f.worker("a")
	for i, want := range []lease.Report{{Claimed: 3, Done: 2, Retried: 1}, {Claimed: 1, Retried: 1}, {Claimed: 1, Retried: 1}} {
		if report := f.step(a); report != want {
			t.Errorf("step %d reported %+v, want %+v", i, report, want)
		}
		f.isAnnounced(games[0])
		f.isAnnounced(games[2])
		if got := f.get(poor.users[0], poor.tickets[0]); got.Session != nil || got.SessionError != "" || len(f.messages(poor.id)) != 0 {
			t.Errorf("without a server the ticket has %+v, published are %v; want no session, no error and no message", got.Made, f.messages(poor.id))
		}
		f.leasesEnd("casual")
	}
	f.servers.set(nil) // one is free
	if report := f.step(a); report != (lease.Report{Claimed: 1, Done: 1}) {
		t.Errorf("the step reported %+v, want Claimed: 1, Done: 1", report)
	}
	if f.isAnnounced(poor) == nil {
		t.Error("the match that waited has no server")
	}
	for _, g := range games {
		if f.carrier.sent[g.event] != 1 {
			t.Errorf("%s was published %d times, want 1", g.id, f.carrier.sent[g.event])
		}
	}

	f.patience = 0
	poor = f.play("casual")
	f.servers.set(none)
	f.carrier.publish = f.diesAfterPublishing
	f.dies(t.Context(), f.worker("b"))
	for range 2 {
		if f.isAnnounced(poor) != nil || f.get(poor.users[1], poor.tickets[1]).SessionError != "no_server" {
			t.Errorf("after patience the ticket has %+v, want the error no_server", f.get(poor.users[1], poor.tickets[1]).Made)
		}
		f.leasesEnd("casual")
		f.step(f.worker("c")) // now one would be free
	}
	if n := f.servers.times(poor.id); n != 1 {
		t.Errorf("asked for a server %d times, want 1", n)
	}
}

// An allocator that hangs keeps a step no longer than its lease; the matches that had their
// turn are decided, and the next steps decide the others.
func TestAllocatorHangs(t *testing.T) {
	f := startAnnouncing(t)
	f.patience = 0
	const all = 100 // 7 rounds of 3 s
	f.playMany("casual", all)
	a := f.worker("a")
	f.servers.first = func(matchmaking.Match) error { kit.Pause(2900 * time.Millisecond); return errors.New("it hangs") }
	began := time.Now()
	report := f.step(a)
	if took := time.Since(began); took > 11*time.Second || report.Done == 0 || report.Done == all {
		t.Errorf("a step took %s and reported %+v, want 11s at most, and some matches done", took, report)
	}
	f.servers.first = func(matchmaking.Match) error { return errors.New("none") }
	f.leasesEnd("casual")
	if next := f.step(a); report.Done+next.Done != all {
		t.Errorf("the next step reported %+v after %+v, want all %d done", next, report, all)
	}
}
