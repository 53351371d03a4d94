package functions_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// Without Redis who asks about queues is told so, soon, and to come back; all else
// goes on. When it is back, the same request is one ticket.
func TestQueuesWithoutRedis(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob := people.patient(t, "alice"), people.patient(t, "bob")
	user := s.userID(alice)
	first := s.joinWith(alice, "casual", "k1", `{"region":"eu"}`)
	wantStatus(t, first, http.StatusCreated)
	ticketID := first.json(t)["ticket_id"].(string)
	s.userID(bob)
	live := s.followAt(followPath(ticketID), alice)
	live.shows("that she waits", func(ticket map[string]any) bool { return ticket["status"] == "QUEUED" })
	must(t, s.redis.Stop())
	soon := func(what string, ask func() answer) {
		t.Helper()
		began := time.Now()
		a := ask()
		took := time.Since(began)
		t.Run(what, func(t *testing.T) { wantAway(t, a) })
		if took > 3*time.Second {
			t.Errorf("%s took %s", what, took)
		}
	}
	for range 2 {
		soon("joining", func() answer { return s.joinWith(bob, "casual", "k1", `{}`) })
		soon("joining in rank", func() answer { return s.joinWith(bob, "rank", "k1", `{"skill":1}`) })
		soon("a replay", func() answer { return s.joinWith(alice, "casual", "k1", `{"region":"eu"}`) })
		soon("reading", func() answer { return s.call(http.MethodGet, ticketPath(ticketID), alice, "") })
		soon("the list", func() answer { return s.call(http.MethodGet, ticketListPath, alice, "") })
		soon("cancelling", func() answer { return s.cancelTicket(alice, ticketID) })
		soon("following", func() answer { return s.call(http.MethodGet, followPath(ticketID), alice, "") })
	}
	for _, function := range []string{"match", "announce"} {
		if status := s.tryTick(function); status != http.StatusServiceUnavailable {
			t.Errorf("a tick of %s: %d", function, status)
		}
	}
	// Who is wrong is told so, also now.
	wantProblem(t, s.joinWith(bob, "nothing", "k1", `{}`), http.StatusNotFound, "mode_not_found")
	wantProblem(t, s.joinWith(bob, "rank", "k1", `{}`), http.StatusUnprocessableEntity, "attributes_invalid")
	// Others go on, and so does the stream that is open.
	wantStatus(t, s.grant("g1", user, "item1"), http.StatusOK)
	s.tellAll()
	eventually(t, queuePatience, "the grant is told live", func() bool { return len(live.named("notification")) == 1 })
	wantStatus(t, s.call(http.MethodGet, mePath, alice, ""), http.StatusOK)
	wantOverview(t, s.call(http.MethodGet, overviewPath, alice, ""), map[string]string{"matchmaking": "unavailable"})

	s.redis = kit.StartRedis(t, s.dir)
	eventually(t, queuePatience, "Redis is back", func() bool { return s.call(http.MethodGet, ticketListPath, alice, "").status == http.StatusOK })
	if got := s.readTicket(alice, ticketID); got["status"] != "QUEUED" || got["position"] != 1.0 {
		t.Errorf("%v", got)
	}
	wantReplay(t, first, s.joinWith(alice, "casual", "k1", `{"region":"eu"}`))
	again := s.joinWith(bob, "casual", "k1", `{}`)
	wantStatus(t, again, http.StatusCreated)
	wantReplay(t, again, s.joinWith(bob, "casual", "k1", `{}`))
	if tickets := s.wantWhole(); len(tickets) != 2 {
		t.Errorf("%d tickets of two requests", len(tickets))
	}
	for _, function := range []string{"match", "announce", "notify", "deliver"} {
		eventually(t, queuePatience, function, func() bool { return s.tryTick(function) == http.StatusOK })
	}
	live.shows("where to meet", func(ticket map[string]any) bool { return ticket["session"] != nil })
	s.wantTold([2]string{user, s.userID(bob)})
}

// The connection to Redis breaks at any moment, again and again: who sends the same
// request until it is answered has one ticket, whole.
func TestJoinsWhileRedisComesAndGoes(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	toRedis, redisURL := through(t, redis.URL())
	toRedis.mend(t)
	s, people := withPlayers(t, "WAKES=false", "REDIS_URL="+redisURL)
	s.redis = redis
	const workers, each, cuts = 24, 12, 12 // so that nobody reaches the limit of joins, which counts repeats
	tokens := make([]string, workers)
	for i := range tokens {
		tokens[i] = people.patient(t, fmt.Sprint("player", i))
		s.userID(tokens[i])
	}
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for range cuts {
			time.Sleep(80 * time.Millisecond) // some requests are let through
			toRedis.cut()
			time.Sleep(5 * time.Millisecond)
			toRedis.mend(t)
		}
	})
	var mutex sync.Mutex
	made, failed := map[string]bool{}, 0
	// until sends a request until it is answered.
	until := func(ask func() answer) answer {
		for deadline := time.Now().Add(queuePatience); ; time.Sleep(20 * time.Millisecond) {
			a := ask()
			if a.status != http.StatusServiceUnavailable || time.Now().After(deadline) {
				return a
			}
			mutex.Lock()
			failed++
			mutex.Unlock()
		}
	}
	atOnce(workers, func(worker int) {
		for n := range each {
			mode, attributes := "casual", `{}`
			if n%2 == 1 {
				mode, attributes = "rank", `{"skill":1500,"region":"eu"}`
			}
			join := func() answer { return s.joinWith(tokens[worker], mode, fmt.Sprint("k", n), attributes) }
			a := until(join)
			if a.status != http.StatusCreated {
				t.Errorf("%d %s", a.status, a.body)
				return
			}
			ticketID := a.json(t)["ticket_id"].(string)
			if again := until(join); string(again.body) != string(a.body) {
				t.Errorf("one request is %s and %s", a.body, again.body)
			}
			if a := until(func() answer { return s.cancelTicket(tokens[worker], ticketID) }); a.status != http.StatusOK || a.json(t)["status"] != "CANCELLED" {
				t.Errorf("%d %s", a.status, a.body)
			}
			mutex.Lock()
			made[ticketID] = true
			mutex.Unlock()
		}
	})
	cutter.Wait()
	tickets := s.wantWhole()
	if len(made) != workers*each || len(tickets) != len(made) {
		t.Errorf("%d requests made %d tickets, and there are %d", workers*each, len(made), len(tickets))
	}
	t.Logf("%d joins, %d times 503", len(made), failed)
	if failed == 0 {
		t.Error("nothing broke: this test shows nothing")
	}
}
