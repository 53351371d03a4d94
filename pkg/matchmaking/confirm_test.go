package matchmaking_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// arrivals answers the confirmer which events notification has.
type arrivals struct {
	has    map[string]bool
	behind bool
	err    error
	asked  int
}

func (a *arrivals) Missing(_ context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	a.asked += len(ids)
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return a.has[id.String()] }), a.err
}

func (a *arrivals) Caught(context.Context, time.Duration) (bool, error) { return !a.behind, a.err }

func (f *announcing) confirmer(a *arrivals, after time.Duration) func() lease.Report {
	c := matchmaking.NewConfirmer(f.Store, a, after, slog.New(slog.DiscardHandler))
	return func() lease.Report {
		f.t.Helper()
		report, err := c.Step(f.t.Context())
		kit.Must(f.t, err)
		return report
	}
}

// Matches whose events have arrived are removed, even while claimed; the others stay.
func TestConfirmed(t *testing.T) {
	f := startAnnouncing(t)
	games := f.playMany("casual", 2)
	dying := f.play("casual")
	late := f.play("rank")
	f.carrier.publish = f.diesAfterPublishing
	f.dies(t.Context(), f.worker("a")) // it published casual's matches, unacknowledged
	a := &arrivals{has: map[string]bool{games[0].event: true, dying.event: true}}
	young := f.confirmer(a, time.Hour)
	if report := young(); report != (lease.Report{}) || a.asked != 0 {
		t.Errorf("for young entries the confirmer reported %+v and asked for %d, want nothing", report, a.asked)
	}
	confirm := f.confirmer(a, 0)
	a.behind = true
	if report := confirm(); report != (lease.Report{Claimed: 4, Done: 2}) {
		t.Errorf("the step reported %+v, want Claimed: 4, Done: 2", report)
	}
	if left := f.entries("casual"); len(left) != 1 || len(left[0].Values) != 2 || len(f.entries("rank")) != 1 {
		t.Errorf("left are %v, want 1 entry of 2 matches, and %v, want 1 entry", left, f.entries("rank"))
	}
	if claimed := f.claimed("casual"); len(claimed) != 1 {
		t.Errorf("claimed are %v, want 1 entry", claimed)
	}
	a.has[games[1].event], a.has[late.event] = true, true
	if report := confirm(); report != (lease.Report{Claimed: 3, Done: 3}) {
		t.Errorf("the step reported %+v, want Claimed: 3, Done: 3", report)
	}
	for _, mode := range f.Modes() {
		if len(f.entries(mode)) != 0 || len(f.claimed(mode)) != 0 {
			t.Errorf("%s: left are %v, claimed %v, want none", mode, f.entries(mode), f.claimed(mode))
		}
	}
	if report := confirm(); report != (lease.Report{}) {
		t.Errorf("the step reported %+v, want nothing", report)
	}
}

// A match that the broker lost is published again each time it is lost, although the
// broker remembers the event's id; a match of the same entry that has arrived is not.
func TestLostMatchesAreAnnouncedAgain(t *testing.T) {
	f := startAnnouncing(t)
	games := f.playMany("casual", 3)
	a := f.worker("a")
	f.step(a)
	first := f.isAnnounced(games[1])
	arrived := &arrivals{has: map[string]bool{games[0].event: true}}
	confirm := f.confirmer(arrived, 0)
	dedups := map[string]bool{games[1].event: true}
	for round := range 3 {
		if report := confirm(); report.Retried != 2 || report.Done != max(0, 1-round) {
			t.Errorf("round %d: the confirmer reported %+v, want 2 retried and %d done", round, report, max(0, 1-round))
		}
		if entries := f.entries("casual"); len(entries) != 1 || len(entries[0].Values) != 2 {
			t.Fatalf("round %d: the entries are %v, want 1 of 2 matches", round, entries)
		}
		if report := f.step(a); report != (lease.Report{Claimed: 2, Done: 2}) {
			t.Errorf("round %d: %+v", round, report)
		}
		messages := f.messages(games[1].id)
		if len(messages) != round+2 {
			t.Fatalf("round %d: the lost match is in the stream %d times, want %d", round, len(messages), round+2)
		}
		m := messages[round+1]
		if m.id != games[1].event || dedups[m.dedup] || m.made.GetSession().GetServer() != first.Server {
			t.Errorf("round %d: published %+v, want the same event and server with a new id for the broker", round, m)
		}
		dedups[m.dedup] = true
		if n := len(f.messages(games[0].id)); n != 1 || len(f.claimed("casual")) != 0 {
			t.Errorf("round %d: the match that arrived is in the stream %d times, want 1; claimed %v, want none", round, n, f.claimed("casual"))
		}
	}
	for _, g := range games[1:] {
		if f.servers.times(g.id) != 1 {
			t.Errorf("%s asked for a server %d times, want 1", g.id, f.servers.times(g.id))
		}
		arrived.has[g.event] = true
	}
	if report := confirm(); report.Done != 2 || len(f.entries("casual")) != 0 {
		t.Errorf("the confirmer reported %+v, want 2 done; left are %v, want none", report, f.entries("casual"))
	}
}

// Each announcer has a consumer of its own in Redis. The consumers of announcers that
// ended are deleted, unless entries are still claimed for them; one that runs continues.
func TestConsumersOfEndedAnnouncers(t *testing.T) {
	f := startAnnouncing(t)
	a := &arrivals{has: map[string]bool{}}
	confirmer := matchmaking.NewConfirmer(f.Store, a, time.Hour, slog.New(slog.DiscardHandler))
	confirm := func() {
		t.Helper()
		_, err := confirmer.Step(t.Context())
		kit.Must(t, err)
	}
	consumers := func() (names []string) {
		t.Helper()
		list, err := f.client.XInfoConsumers(t.Context(), "mm:events:{casual}", "announce").Result()
		kit.Must(t, err)
		for _, c := range list {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		return names
	}
	confirm() // without a stream
	g := f.play("casual")
	confirm() // without a group
	f.carrier.publish = f.diesAfterPublishing
	f.dies(t.Context(), f.worker("dying"))
	running := f.worker("running")
	for _, worker := range []*matchmaking.Announcer{running, f.worker("ended 1"), f.worker("ended 2")} {
		f.play("casual") // without anything to claim there is no consumer
		f.step(worker)
	}
	confirm()
	if got, want := consumers(), []string{"dying", "ended 1", "ended 2", "running"}; !slices.Equal(got, want) {
		t.Errorf("before they are idle for long: %v, want %v", got, want)
	}
	confirmer.SetIdle(0)
	confirm()
	if got, want := consumers(), []string{"dying"}; !slices.Equal(got, want) {
		t.Errorf("the consumers are %v, want %v, which has a pending entry", got, want)
	}
	f.leasesEnd("casual")
	if report := f.step(running); report.Done != 1 {
		t.Errorf("after the worker died the other one reported %+v, want 1 done", report)
	}
	if n := len(f.messages(g.id)); n != 1 {
		t.Errorf("the match of the worker that died is in the stream %d times, want 1", n)
	}
	confirm()
	if got := consumers(); len(got) != 0 {
		t.Errorf("when nothing is pending any more the consumers are %v, want none", got)
	}
}
