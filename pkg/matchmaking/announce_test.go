package matchmaking_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Each match is told once, to the broker and with its server on both tickets; its entry
// stays until its event has arrived.
func TestTold(t *testing.T) {
	f := startTelling(t)
	a := f.worker("a")
	if report := f.step(a); report != (lease.Report{}) {
		t.Errorf("nothing to tell: %+v", report)
	}
	games := append(f.playMany("casual", 3), f.play("rank"), f.play("regional"), f.play("casual"))
	if got := f.get(games[0].users[0], games[0].tickets[0]); got.Session != nil || got.SessionError != "" {
		t.Errorf("%+v", got.Made)
	}
	if report := f.step(a); report != (lease.Report{Claimed: 6, Done: 6}) {
		t.Errorf("%+v", report)
	}
	all := map[string]bool{}
	for _, g := range games {
		session := f.isTold(g)
		if session == nil || all[session.Server] || session.Address != "203.0.113.7" || len(session.Ports) != 1 || f.servers.times(g.id) != 1 {
			t.Errorf("%s: %+v, asked %d times", g.id, session, f.servers.times(g.id))
			continue
		}
		all[session.Server] = true
	}
	if f.wakes == 0 {
		t.Error("nobody was woken")
	}
	for range 2 {
		if report := f.step(f.worker("b")); report != (lease.Report{}) {
			t.Errorf("again: %+v", report)
		}
		for _, mode := range f.Modes() {
			if n := f.client.XLen(t.Context(), "mm:events:{"+mode+"}").Val(); len(f.claimed(mode)) != 0 || n == 0 {
				t.Errorf("%s: %d entries, claimed %v", mode, n, f.claimed(mode))
			}
			f.leasesEnd(mode)
		}
	}
}

// The moment of a match is the same text in its event and in its tickets, whatever
// millisecond it was.
func TestToldAtTheSameMoment(t *testing.T) {
	f := startTelling(t)
	c := f.clock()
	a := f.worker("a")
	for _, ms := range []time.Duration{0, 100, 20, 3, 877} { // .000, .100, .120, .123
		c.pass(ms * time.Millisecond)
		g := f.play("casual")
		f.step(a)
		f.isTold(g)
	}
}

// Many entries are told in steps, and a step says that there are more.
func TestToldInSteps(t *testing.T) {
	f := startTelling(t)
	var games []game
	for range 9 {
		games = append(games, f.play("casual"))
	}
	a := f.worker("a")
	for i, want := range []lease.Report{{Claimed: 4, Done: 4, More: true}, {Claimed: 4, Done: 4, More: true}, {Claimed: 1, Done: 1}} {
		if report := f.step(a); report != want {
			t.Errorf("step %d: %+v", i, report)
		}
	}
	for _, g := range games {
		f.isTold(g)
	}
}

// A ticket that is gone by the time its match is told does not come back, as it would
// stay for ever; the other player is told all the same.
func TestToldOfATicketThatIsGone(t *testing.T) {
	f := startTelling(t)
	for gone := range 2 {
		g := f.play("casual")
		kit.Must(t, f.client.Del(t.Context(), ticketKey(g.tickets[gone])).Err())
		if report := f.step(f.worker("a")); report != (lease.Report{Claimed: 1, Done: 1}) {
			t.Errorf("%+v", report)
		}
		if n := f.client.Exists(t.Context(), ticketKey(g.tickets[gone])).Val(); n != 0 {
			t.Error("the ticket came back")
		}
		left := f.get(g.users[1-gone], g.tickets[1-gone])
		if told := f.messages(g.id); len(told) != 1 || left.Session == nil || told[0].made.GetSession().GetServer() != left.Session.Server {
			t.Errorf("told %v, and the ticket has %+v", told, left.Made)
		}
	}
}

// Workers side by side tell each match once between them.
func TestWorkersSideBySide(t *testing.T) {
	f := startTelling(t)
	var games []game
	for range 15 {
		for _, mode := range f.Modes() {
			games = append(games, f.playMany(mode, 2)...)
		}
	}
	var workers sync.WaitGroup
	for i := range 4 {
		a := matchmaking.NewAnnouncer(matchmaking.AnnouncerConfig{
			Store: f.Store, Allocator: f.servers, Publisher: f.carrier,
			Worker: fmt.Sprint(i), Patience: time.Hour, Published: func() {}, Log: slog.New(slog.DiscardHandler),
		})
		workers.Go(func() {
			for {
				report, err := a.Step(t.Context())
				if err != nil || report.Claimed == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	workers.Wait()
	times := map[string]int{}
	for _, m := range f.messages("") {
		times[m.made.GetMatchId()]++
	}
	for _, g := range games {
		if n := times[g.id]; n != 1 || f.carrier.sent[g.event] != 1 || f.servers.times(g.id) != 1 {
			t.Errorf("%s is told %d times, published %d times, has %d servers", g.id, n, f.carrier.sent[g.event], f.servers.times(g.id))
		}
	}
	for _, mode := range f.Modes() {
		if len(f.claimed(mode)) != 0 {
			t.Errorf("%s: claimed %v", mode, f.claimed(mode))
		}
	}
}

// A consumer group that is lost is made again: everything in the stream is told then,
// once, as the broker knows what it has.
func TestGroupLost(t *testing.T) {
	f := startTelling(t)
	a := f.worker("a")
	old := f.play("casual")
	f.step(a)
	fresh := f.play("casual")
	kit.Must(t, f.client.XGroupDestroy(t.Context(), "mm:events:{casual}", "announce").Err())
	if report := f.step(a); report != (lease.Report{Claimed: 2, Done: 2}) {
		t.Errorf("%+v", report)
	}
	f.isTold(old)
	f.isTold(fresh)
	kit.Must(t, f.client.FlushAll(t.Context()).Err())
	for range 2 {
		if report := f.step(a); report != (lease.Report{}) {
			t.Errorf("of an empty Redis: %+v", report)
		}
	}
	g := f.play("rank")
	if report := f.step(a); report != (lease.Report{Claimed: 1, Done: 1}) {
		t.Errorf("%+v", report)
	}
	f.isTold(g)
}
