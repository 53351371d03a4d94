package stream_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A user may hold eight streams, across all processes and identities; one more is refused
// with what to do, and no other user is affected.
func TestStreamsOfOneUser(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	other := s.Another()
	var alice string
	var closes []func()
	ask := func(name string) map[string]int {
		alice, closes = i.Fresh(t, name, nil), nil
		linked := i.Fresh(t, name+"'s second", nil)
		s.UserID(alice)
		system.WantStatus(t, s.LinkToken(alice, linked), http.StatusOK)
		answered := map[string]int{}
		for n := range 60 {
			on, token := s, alice
			if n%2 > 0 {
				on = other
			}
			if n%3 > 0 {
				token = linked
			}
			a, close := on.OpenStream(token)
			if a.Status == http.StatusOK {
				answered["200"]++
				closes = append(closes, close)
				continue
			}
			system.WantProblem(t, a, http.StatusTooManyRequests, "too_many_streams")
			answered["429 too_many_streams"]++
			if a.Header.Get("Retry-After") != "5" || !strings.Contains(string(a.Body), "close one") {
				t.Errorf("Retry-After %q, %s, want 5 and what to close", a.Header.Get("Retry-After"), a.Body)
			}
		}
		return answered
	}
	var answered map[string]int
	s.Shared(func() { answered = ask("alice " + rand.Text()) })
	t.Logf("60 streams of one user: %v", answered)
	if want := map[string]int{"200": 8, "429 too_many_streams": 52}; !maps.Equal(answered, want) {
		t.Errorf("60 streams of one user were answered %v, want %v", answered, want)
	}
	a, _ := s.OpenStream(i.Fresh(t, "bob", nil))
	system.WantStatus(t, a, http.StatusOK)
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", alice, ""), http.StatusOK)
	closes[0]()
	kit.Eventually(t, "one of her places is free", func() bool {
		a, _ = other.OpenStream(alice)
		return a.Status == http.StatusOK
	})
}

// Streams take at most half of a gateway's places, and leave the rest to requests.
func TestStreamsLeavePlaces(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	s.Apart()
	gateway, err := functions.Named(functions.GatewayName)
	kit.Must(t, err)
	places := gateway.Concurrency / 2
	const each = 8
	answered := map[int]int{}
	for n := range places/each + 1 {
		token := people.Player(t, fmt.Sprint("player", n))
		for range each {
			a, _ := s.OpenStream(token)
			answered[a.Status]++
			if a.Status != http.StatusOK {
				system.WantProblem(t, a, http.StatusServiceUnavailable, "streams_full")
				if a.Header.Get("Retry-After") != "5" {
					t.Errorf("Retry-After %q, want 5", a.Header.Get("Retry-After"))
				}
			}
		}
		system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", token, ""), http.StatusOK)
	}
	if answered[http.StatusOK] != places {
		t.Errorf("streams were answered %v, want %d with 200: half of %d places", answered, places, gateway.Concurrency)
	}
}

// HEAD takes no place; like every request for a stream it counts against the stream's
// quota, which is lower than the caller's limit.
func TestStreamQuota(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	alice := i.Fresh(t, "alice", nil)
	const quota = 60
	passed, alone := 0, s.Alone()
	a := system.Flood(t, func() system.Answer {
		a := s.Call(http.MethodHead, system.StreamPath, alice, "")
		if a.Status == http.StatusOK {
			passed++
		}
		return a
	})
	if places := s.Keys("open:*"); len(places) > 0 {
		t.Errorf("HEAD takes places: %v", places)
	}
	if policy := a.Header.Values("RateLimit-Policy"); passed < quota || passed > quota+10+quota*(s.Alone()-alone) || !strings.Contains(strings.Join(policy, " "), `"stream-my-notifications";q=60;w=60`) {
		t.Errorf("%d requests passed, policy %q, want %d and those refilled meanwhile, by stream-my-notifications", passed, policy, quota)
	}
	s.Shared(func() {
		system.Flood(t, func() system.Answer { return s.Call(http.MethodHead, system.StreamPath, alice, "") })
		a, _ = s.OpenStream(alice)
	})
	system.WantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", alice, ""), http.StatusOK)
}
