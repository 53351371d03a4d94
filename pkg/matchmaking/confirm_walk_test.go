package matchmaking_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The confirmer asks for an entry that is ten seconds old. It has the entry announced
// again only when it is older than the given time and the consumer has caught up.
func TestConfirmerWaits(t *testing.T) {
	f := startAnnouncing(t)
	g := f.play("casual")
	value := f.entries("casual")[0].Values[g.id]
	now := f.client.Time(t.Context()).Val()
	kit.Must(t, f.client.Del(t.Context(), "mm:events:{casual}").Err())
	for _, age := range []time.Duration{70 * time.Second, 30 * time.Second, 5 * time.Second} {
		kit.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{
			Stream: "mm:events:{casual}", ID: fmt.Sprint(now.Add(-age).UnixMilli(), "-0"), Values: []any{g.id, value},
		}).Err())
	}
	before := f.entries("casual")
	a := &arrivals{behind: true}
	confirm := f.confirmer(a, time.Minute)
	if report := confirm(); report != (lease.Report{Claimed: 2}) || a.asked != 2 || !slices.EqualFunc(f.entries("casual"), before, same) {
		t.Errorf("the confirmer reported %+v, want 2 claimed; asked for %d, want 2; the entries are %v, want %v", report, a.asked, f.entries("casual"), before)
	}
	a.behind = false
	if report := confirm(); report != (lease.Report{Claimed: 2, Retried: 1}) {
		t.Errorf("the step reported %+v, want Claimed: 2, Retried: 1", report)
	}
	left := f.entries("casual")
	if len(left) != 3 || !same(left[0], before[1]) || !same(left[1], before[2]) || strings.Count(left[2].Values[g.id].(string), "\n") != 7 {
		t.Errorf("%v became %v", before, left)
	}
	a.err = errors.New("notification is away")
	c := matchmaking.NewConfirmer(f.Store, a, 0, slog.New(slog.DiscardHandler))
	if report, err := c.Step(t.Context()); !errors.Is(err, a.err) || report.Done+report.Retried != 0 || !slices.EqualFunc(f.entries("casual"), left, same) {
		t.Errorf("with notification away the step reported %+v, %v; %v became %v", report, err, left, f.entries("casual"))
	}
}

func same(a, b redis.XMessage) bool {
	return a.ID == b.ID && fmt.Sprint(a.Values) == fmt.Sprint(b.Values)
}

// A confirmer walks over all entries, past those that stay, and begins again. Two of them
// side by side do not have a match announced twice.
func TestConfirmersWalk(t *testing.T) {
	f := startAnnouncing(t)
	a := &arrivals{has: map[string]bool{}, behind: true}
	var games []game
	for i := range 45 {
		g := f.play("casual")
		games = append(games, g)
		a.has[g.event] = i >= 25
	}
	f.step(f.worker("a"))
	one := f.confirmer(a, 0)
	for i, want := range []lease.Report{{Claimed: 20, More: true}, {Claimed: 20, Done: 15, More: true}, {Claimed: 5, Done: 5}, {Claimed: 20, More: true}} {
		if report := one(); report != want {
			t.Errorf("step %d reported %+v, want %+v", i, report, want)
		}
	}
	if n := len(f.entries("casual")); n != 25 {
		t.Errorf("%d entries are left, want 25", n)
	}
	a.behind = false
	// Both see the same entries and settle them at once.
	var both sync.WaitGroup
	for _, confirm := range []*matchmaking.Confirmer{
		matchmaking.NewConfirmer(f.Store, &arrivals{has: a.has}, 0, slog.New(slog.DiscardHandler)),
		matchmaking.NewConfirmer(f.Store, &arrivals{has: a.has}, 0, slog.New(slog.DiscardHandler)),
	} {
		both.Go(func() {
			if _, err := confirm.Step(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	counts := map[string]int{}
	for _, e := range f.entries("casual") {
		for id := range e.Values {
			counts[id]++
		}
	}
	for i, g := range games {
		if want := map[bool]int{true: 1, false: 0}[i < 25]; counts[g.id] != want {
			t.Errorf("match %d is in the entries %d times, want %d", i, counts[g.id], want)
		}
	}
}
