package matchmaking_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Without Redis, requests about queues are soon answered 503 with Retry-After; everything
// else works. When Redis is back, the same request makes one ticket.
func TestQueuesWithoutRedis(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob := people.Patient(t, "alice"), people.Patient(t, "bob")
	user := s.UserID(alice)
	first := s.JoinWith(alice, "casual", "k1", `{"region":"eu"}`)
	system.WantStatus(t, first, http.StatusCreated)
	ticketID := first.JSON(t)["ticket_id"].(string)
	s.UserID(bob)
	live := s.FollowAt(system.FollowPath(ticketID), alice)
	live.Shows("that she waits", func(ticket map[string]any) bool { return ticket["status"] == "QUEUED" })
	kit.Must(t, s.Redis.Stop())
	soon := func(what string, ask func() system.Answer) {
		t.Helper()
		began := time.Now()
		a := ask()
		took := time.Since(began)
		t.Run(what, func(t *testing.T) { system.WantAway(t, a) })
		if took > 3*time.Second {
			t.Errorf("%s took %s", what, took)
		}
	}
	for range 2 {
		soon("joining", func() system.Answer { return s.JoinWith(bob, "casual", "k1", `{}`) })
		soon("joining in rank", func() system.Answer { return s.JoinWith(bob, "rank", "k1", `{"skill":1}`) })
		soon("a replay", func() system.Answer { return s.JoinWith(alice, "casual", "k1", `{"region":"eu"}`) })
		soon("reading", func() system.Answer { return s.Call(http.MethodGet, system.TicketPath(ticketID), alice, "") })
		soon("the list", func() system.Answer { return s.Call(http.MethodGet, system.TicketListPath, alice, "") })
		soon("cancelling", func() system.Answer { return s.CancelTicket(alice, ticketID) })
		soon("following", func() system.Answer { return s.Call(http.MethodGet, system.FollowPath(ticketID), alice, "") })
	}
	for _, function := range []string{"match", "announce"} {
		if status := s.TryTick(function); status != http.StatusServiceUnavailable {
			t.Errorf("a tick of %s answered %d, want 503", function, status)
		}
	}
	// A wrong request is refused as wrong, without Redis too.
	system.WantProblem(t, s.JoinWith(bob, "nothing", "k1", `{}`), http.StatusNotFound, "mode_not_found")
	system.WantProblem(t, s.JoinWith(bob, "rank", "k1", `{}`), http.StatusUnprocessableEntity, "attributes_invalid")
	// Other requests are served, and the open stream stays open.
	system.WantStatus(t, s.Grant("g1", user, "item1"), http.StatusOK)
	s.DeliverAll()
	kit.Eventually(t, "the grant is delivered live", func() bool { return len(live.Named("notification")) == 1 })
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, alice, ""), http.StatusOK)
	system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, alice, ""), map[string]string{"matchmaking": "unavailable"})

	s.Redis = kit.StartRedis(t, s.RedisDir)
	kit.Eventually(t, "Redis is back", func() bool { return s.Call(http.MethodGet, system.TicketListPath, alice, "").Status == http.StatusOK })
	if got := s.ReadTicket(alice, ticketID); got["status"] != "QUEUED" || got["position"] != 1.0 {
		t.Errorf("the ticket is %v, want QUEUED at position 1", got)
	}
	system.WantReplay(t, first, s.JoinWith(alice, "casual", "k1", `{"region":"eu"}`))
	again := s.JoinWith(bob, "casual", "k1", `{}`)
	system.WantStatus(t, again, http.StatusCreated)
	system.WantReplay(t, again, s.JoinWith(bob, "casual", "k1", `{}`))
	if tickets := wantWhole(s); len(tickets) != 2 {
		t.Errorf("%d tickets for two requests", len(tickets))
	}
	for _, function := range []string{"match", "announce", "notify", "deliver"} {
		kit.Eventually(t, function, func() bool { return s.TryTick(function) == http.StatusOK })
	}
	live.Shows("where to meet", func(ticket map[string]any) bool { return ticket["session"] != nil })
	wantNotified(s, [2]string{user, s.UserID(bob)})
}

// The connection to Redis breaks again and again, at any moment: a request that is
// repeated until it is answered makes one ticket, complete.
func TestJoinsWhileRedisComesAndGoes(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	toRedis, redisURL := kit.Through(t, redis.URL())
	s, people := system.StartWithPeople(t, "WAKES=false", "REDIS_URL="+redisURL)
	s.Redis = redis
	const workers, each, cuts = 24, 12, 12 // too few for the limit of joins, which counts repeats too
	tokens := make([]string, workers)
	for i := range tokens {
		tokens[i] = people.Patient(t, fmt.Sprint("player", i))
		s.UserID(tokens[i])
	}
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for range cuts {
			kit.Pause(80 * time.Millisecond) // let some requests through
			toRedis.Cut()
			kit.Pause(5 * time.Millisecond)
			toRedis.Mend()
		}
	})
	var mutex sync.Mutex
	made, failed := map[string]bool{}, 0
	// until sends a request until it is answered.
	until := func(ask func() system.Answer) system.Answer {
		for deadline := time.Now().Add(kit.Patience); ; kit.Pause(20 * time.Millisecond) {
			a := ask()
			if a.Status != http.StatusServiceUnavailable || time.Now().After(deadline) {
				return a
			}
			mutex.Lock()
			failed++
			mutex.Unlock()
		}
	}
	system.AtOnce(workers, func(worker int) {
		for n := range each {
			mode, attributes := "casual", `{}`
			if n%2 == 1 {
				mode, attributes = "rank", `{"skill":1500,"region":"eu"}`
			}
			join := func() system.Answer { return s.JoinWith(tokens[worker], mode, fmt.Sprint("k", n), attributes) }
			a := until(join)
			if a.Status != http.StatusCreated {
				t.Errorf("answered %d %s, want 201", a.Status, a.Body)
				return
			}
			ticketID := a.Text("ticket_id")
			if again := until(join); string(again.Body) != string(a.Body) {
				t.Errorf("one request was answered %s and then %s", a.Body, again.Body)
			}
			if a := until(func() system.Answer { return s.CancelTicket(tokens[worker], ticketID) }); a.Status != http.StatusOK || a.JSON(t)["status"] != "CANCELLED" {
				t.Errorf("cancelling answered %d %s, want 200 CANCELLED", a.Status, a.Body)
			}
			mutex.Lock()
			made[ticketID] = true
			mutex.Unlock()
		}
	})
	cutter.Wait()
	tickets := wantWhole(s)
	if len(made) != workers*each || len(tickets) != len(made) {
		t.Errorf("%d requests were answered with %d tickets, and %d exist", workers*each, len(made), len(tickets))
	}
	t.Logf("%d joins, %d times 503", len(made), failed)
	if failed == 0 {
		t.Error("nothing broke: this test shows nothing")
	}
}
