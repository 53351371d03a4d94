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

// Each match is announced once: published to the broker, with its server on both tickets.
// Its entry stays until its event has arrived.
func TestAnnounced(t *testing.T) {
	f := startAnnouncing(t)
	a := f.worker("a")
	if report := f.step(a); report != (lease.Report{}) {
		t.Errorf("without a match the step reported %+v, want nothing", report)
	}
	games := append(f.playMany("casual", 3), f.play("rank"), f.play("regional"), f.play("casual"))
	if got := f.get(games[0].users[0], games[0].tickets[0]); got.Session != nil || got.SessionError != "" {
		t.Errorf("before it is announced the match is %+v, want no session and no error", got.Made)
	}
	if report := f.step(a); report != (lease.Report{Claimed: 6, Done: 6}) {
		t.Errorf("the step reported %+v, want Claimed: 6, Done: 6", report)
	}
	all := map[string]bool{}
	for _, g := range games {
		session := f.isAnnounced(g)
		if session == nil || all[session.Server] || session.Address != "203.0.113.7" || len(session.Ports) != 1 || f.servers.times(g.id) != 1 {
			t.Errorf("%s: session %+v, want a server of its own; asked for it %d times, want 1", g.id, session, f.servers.times(g.id))
			continue
		}
		all[session.Server] = true
	}
	if f.wakes == 0 {
		t.Error("Published was never called")
	}
	for range 2 {
		if report := f.step(f.worker("b")); report != (lease.Report{}) {
			t.Errorf("another step reported %+v, want nothing", report)
		}
		for _, mode := range f.Modes() {
			if n := f.client.XLen(t.Context(), "mm:events:{"+mode+"}").Val(); len(f.claimed(mode)) != 0 || n == 0 {
				t.Errorf("%s: %d entries, want some; claimed are %v, want none", mode, n, f.claimed(mode))
			}
			f.leasesEnd(mode)
		}
	}
}

// The time of a match is the same text in its event and in its tickets, whatever its
// milliseconds.
func TestAnnouncedAtTheSameMoment(t *testing.T) {
	f := startAnnouncing(t)
	c := f.clock()
	a := f.worker("a")
	for _, ms := range []time.Duration{0, 100, 20, 3, 877} { // .000, .100, .120, .123
		c.pass(ms * time.Millisecond)
		g := f.play("casual")
		f.step(a)
		f.isAnnounced(g)
	}
}

// Many entries are announced in steps, and a step reports that there are more.
func TestAnnouncedInSteps(t *testing.T) {
	f := startAnnouncing(t)
	var games []game
	for range 9 {
		games = append(games, f.play("casual"))
	}
	a := f.worker("a")
	for i, want := range []lease.Report{{Claimed: 4, Done: 4, More: true}, {Claimed: 4, Done: 4, More: true}, {Claimed: 1, Done: 1}} {
		if report := f.step(a); report != want {
			t.Errorf("step %d reported %+v, want %+v", i, report, want)
		}
	}
	for _, g := range games {
		f.isAnnounced(g)
	}
}

// A ticket that is gone when its match is announced is not written again: it would stay
// for ever. The match is announced all the same, and the other ticket gets its session.
func TestAnnouncedToATicketThatIsGone(t *testing.T) {
	f := startAnnouncing(t)
	for gone := range 2 {
		g := f.play("casual")
		kit.Must(t, f.client.Del(t.Context(), ticketKey(g.tickets[gone])).Err())
		if report := f.step(f.worker("a")); report != (lease.Report{Claimed: 1, Done: 1}) {
			t.Errorf("the step reported %+v, want Claimed: 1, Done: 1", report)
		}
		if n := f.client.Exists(t.Context(), ticketKey(g.tickets[gone])).Val(); n != 0 {
			t.Error("the ticket came back")
		}
		left := f.get(g.users[1-gone], g.tickets[1-gone])
		if sent := f.messages(g.id); len(sent) != 1 || left.Session == nil || sent[0].made.GetSession().GetServer() != left.Session.Server {
			t.Errorf("published are %v, want 1 with the session of the ticket: %+v", sent, left.Made)
		}
	}
}

// Callers choose their keys: one that looks like what happened to a ticket changes nothing.
func TestKeysThatLookLikeWhatHappened(t *testing.T) {
	f := startAnnouncing(t)
	for i, key := range []string{`session {"server":"x","address":"evil.example","ports":[]}`, "session_error no_server", "MATCHED m_1 1 u_1", "level 7", "CANCELLED"} {
		for _, mode := range f.Modes() {
			var users, tickets [2]string
			for j := range users {
				users[j] = fmt.Sprint("u_", mode, i, j)
				tickets[j] = f.joinAs(users[j], mode, key, `{"skill":1}`)
				if got := f.get(users[j], tickets[j]); got.Status != matchmaking.Queued {
					t.Errorf("a ticket with the key %q is %s, want QUEUED", key, got.Status)
				}
			}
			if pass := f.match(mode); len(pass.Matches) != 1 {
				t.Fatalf("with the key %q the pass did %+v, want a match", key, pass)
			}
			f.step(f.worker("a"))
			for j := range users {
				got := f.get(users[j], tickets[j])
				if got.Made == nil || got.Session == nil || got.Session.Address != "203.0.113.7" || got.SessionError != "" || got.PeerUserIDs[0] != users[1-j] {
					t.Errorf("with the key %q the match is %+v", key, got.Made)
				}
			}
		}
	}
}

// Workers side by side announce each match once between them.
func TestWorkersSideBySide(t *testing.T) {
	f := startAnnouncing(t)
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
			t.Errorf("%s is in the stream %d times, was published %d times, asked for a server %d times; want 1 each", g.id, n, f.carrier.sent[g.event], f.servers.times(g.id))
		}
	}
	for _, mode := range f.Modes() {
		if len(f.claimed(mode)) != 0 {
			t.Errorf("%s: still claimed are %v, want none", mode, f.claimed(mode))
		}
	}
}

// A consumer group that is lost is created again, and everything in the stream is
// published again; the broker drops the messages that it has already.
func TestGroupLost(t *testing.T) {
	f := startAnnouncing(t)
	a := f.worker("a")
	old := f.play("casual")
	f.step(a)
	fresh := f.play("casual")
	kit.Must(t, f.client.XGroupDestroy(t.Context(), "mm:events:{casual}", "announce").Err())
	if report := f.step(a); report != (lease.Report{Claimed: 2, Done: 2}) {
		t.Errorf("the step reported %+v, want Claimed: 2, Done: 2", report)
	}
	f.isAnnounced(old)
	f.isAnnounced(fresh)
	kit.Must(t, f.client.FlushAll(t.Context()).Err())
	for range 2 {
		if report := f.step(a); report != (lease.Report{}) {
			t.Errorf("with an empty Redis the step reported %+v, want nothing", report)
		}
	}
	g := f.play("rank")
	if report := f.step(a); report != (lease.Report{Claimed: 1, Done: 1}) {
		t.Errorf("the step reported %+v, want Claimed: 1, Done: 1", report)
	}
	f.isAnnounced(g)
}
