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

// arrivals is what notification has, as the confirmer asks for it.
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

func (f *telling) confirmer(a *arrivals, after time.Duration) func() lease.Report {
	c := matchmaking.NewConfirmer(f.Store, a, after, slog.New(slog.DiscardHandler))
	return func() lease.Report {
		f.t.Helper()
		report, err := c.Step(f.t.Context())
		kit.Must(f.t, err)
		return report
	}
}

// What has arrived is removed, told or claimed still; what has not stays.
func TestConfirmed(t *testing.T) {
	f := startTelling(t)
	games := f.playMany("casual", 2)
	dying := f.play("casual")
	late := f.play("rank")
	f.carrier.publish = f.diesAfterPublishing
	f.dies(t.Context(), f.worker("a")) // it told of casual, and has not acknowledged
	a := &arrivals{has: map[string]bool{games[0].event: true, dying.event: true}}
	young := f.confirmer(a, time.Hour)
	if report := young(); report != (lease.Report{}) || a.asked != 0 {
		t.Errorf("young ones: %+v, asked for %d", report, a.asked)
	}
	confirm := f.confirmer(a, 0)
	a.behind = true
	if report := confirm(); report != (lease.Report{Claimed: 4, Done: 2}) {
		t.Errorf("%+v", report)
	}
	if left := f.entries("casual"); len(left) != 1 || len(left[0].Values) != 2 || len(f.entries("rank")) != 1 {
		t.Errorf("left are %v and %v", left, f.entries("rank"))
	}
	if claimed := f.claimed("casual"); len(claimed) != 1 {
		t.Errorf("claimed are %v", claimed)
	}
	a.has[games[1].event], a.has[late.event] = true, true
	if report := confirm(); report != (lease.Report{Claimed: 3, Done: 3}) {
		t.Errorf("%+v", report)
	}
	for _, mode := range f.Modes() {
		if len(f.entries(mode)) != 0 || len(f.claimed(mode)) != 0 {
			t.Errorf("%s: left are %v, claimed %v", mode, f.entries(mode), f.claimed(mode))
		}
	}
	if report := confirm(); report != (lease.Report{}) {
		t.Errorf("%+v", report)
	}
}

// What the broker lost is told again although it remembers the event's id, each time it
// is lost; what of the same entry has arrived is not.
func TestLostMatchesAreToldAgain(t *testing.T) {
	f := startTelling(t)
	games := f.playMany("casual", 3)
	a := f.worker("a")
	f.step(a)
	first := f.isTold(games[1])
	arrived := &arrivals{has: map[string]bool{games[0].event: true}}
	confirm := f.confirmer(arrived, 0)
	dedups := map[string]bool{games[1].event: true}
	for round := range 3 {
		if report := confirm(); report.Retried != 2 || report.Done != max(0, 1-round) {
			t.Errorf("round %d: %+v", round, report)
		}
		if entries := f.entries("casual"); len(entries) != 1 || len(entries[0].Values) != 2 {
			t.Fatalf("round %d: %v", round, entries)
		}
		if report := f.step(a); report != (lease.Report{Claimed: 2, Done: 2}) {
			t.Errorf("round %d: %+v", round, report)
		}
		messages := f.messages(games[1].id)
		if len(messages) != round+2 {
			t.Fatalf("round %d: it is in the stream %d times", round, len(messages))
		}
		m := messages[round+1]
		if m.id != games[1].event || dedups[m.dedup] || m.made.GetSession().GetServer() != first.Server {
			t.Errorf("round %d: %+v", round, m)
		}
		dedups[m.dedup] = true
		if n := len(f.messages(games[0].id)); n != 1 || len(f.claimed("casual")) != 0 {
			t.Errorf("round %d: what arrived is told %d times; claimed %v", round, n, f.claimed("casual"))
		}
	}
	for _, g := range games[1:] {
		if f.servers.times(g.id) != 1 {
			t.Errorf("asked for a server %d times", f.servers.times(g.id))
		}
		arrived.has[g.event] = true
	}
	if report := confirm(); report.Done != 2 || len(f.entries("casual")) != 0 {
		t.Errorf("%+v, left are %v", report, f.entries("casual"))
	}
}

// Announcers come and go, each with a consumer of its own: those that ended are deleted,
// but not with entries that they had claimed, and one that goes on is not hindered.
func TestConsumersOfEndedAnnouncers(t *testing.T) {
	f := startTelling(t)
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
		t.Errorf("the consumers are %v, want %v, for which an entry is pending", got, want)
	}
	f.leasesEnd("casual")
	if report := f.step(running); report.Done != 1 {
		t.Errorf("what the dying one had claimed is told by another: %+v", report)
	}
	if n := len(f.messages(g.id)); n != 1 {
		t.Errorf("its match is in the broker's stream %d times, want 1", n)
	}
	confirm()
	if got := consumers(); len(got) != 0 {
		t.Errorf("when nothing is pending any more the consumers are %v, want none", got)
	}
}
