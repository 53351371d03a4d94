package functions_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/kit"
)

// again is the same system in one more process.
func (s *system) again() *system {
	s.t.Helper()
	runtime := fn.NewRuntime(s.runtime.Settings, s.runtime.Log, functions.All)
	handler, err := functions.Together(runtime)
	must(s.t, err)
	listener := kit.Listen(s.t)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	s.t.Cleanup(func() { server.Close(); runtime.Close() })
	other := *s
	other.runtime, other.url = runtime, "http://"+listener.Addr().String()
	return &other
}

// openStream is the answer to a stream that was asked for; close ends it.
func (s *system) openStream(token string) (a answer, close func()) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+streamPath, nil)
	must(s.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode == http.StatusOK {
		return answer{response.StatusCode, response.Header, nil}, func() { _ = response.Body.Close() }
	}
	body, err := io.ReadAll(response.Body)
	must(s.t, err)
	return answer{response.StatusCode, response.Header, body}, func() {}
}

// keys returns what Redis holds under a pattern.
func (s *system) keys(pattern string) []string {
	s.t.Helper()
	client := s.queueClient()
	defer client.Close()
	keys, err := client.Keys(s.t.Context(), pattern).Result()
	must(s.t, err)
	return keys
}

// One user holds eight streams, over all processes and identities; what is too much
// is told what to do, and nobody else notices.
func TestStreamsOfOneUser(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	other := s.again()
	var alice string
	var closes []func()
	ask := func(name string) map[string]int {
		alice, closes = i.fresh(t, name, nil), nil
		linked := i.fresh(t, name+"'s second", nil)
		s.userID(alice)
		wantStatus(t, s.linkToken(alice, linked), http.StatusOK)
		answered := map[string]int{}
		for n := range 60 {
			on, token := s, alice
			if n%2 > 0 {
				on = other
			}
			if n%3 > 0 {
				token = linked
			}
			a, close := on.openStream(token)
			if a.status == http.StatusOK {
				answered["200"]++
				closes = append(closes, close)
				continue
			}
			wantProblem(t, a, http.StatusTooManyRequests, "too_many_streams")
			answered["429 too_many_streams"]++
			if a.header.Get("Retry-After") != "5" || !strings.Contains(string(a.body), "close one") {
				t.Errorf("Retry-After %q, %s, want 5 and what to close", a.header.Get("Retry-After"), a.body)
			}
		}
		return answered
	}
	var answered map[string]int
	s.shared(func() { answered = ask("alice " + rand.Text()) })
	t.Logf("60 streams of one user: %v", answered)
	if want := map[string]int{"200": 8, "429 too_many_streams": 52}; !maps.Equal(answered, want) {
		t.Errorf("60 streams of one user were answered %v, want %v", answered, want)
	}
	a, _ := s.openStream(i.fresh(t, "bob", nil))
	wantStatus(t, a, http.StatusOK)
	wantStatus(t, s.call(http.MethodGet, "/v1/me", alice, ""), http.StatusOK)
	closes[0]()
	eventually(t, 10*time.Second, "a place of hers is free", func() bool {
		a, _ = other.openStream(alice)
		return a.status == http.StatusOK
	})
}

// Streams take half of a gateway's places, and leave the others to requests.
func TestStreamsLeavePlaces(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	s.apart()
	gateway, err := functions.Named(functions.GatewayName)
	must(t, err)
	places := gateway.Concurrency / 2
	const each = 8
	answered := map[int]int{}
	for n := range places/each + 1 {
		token := people.player(t, fmt.Sprint("player", n))
		for range each {
			a, _ := s.openStream(token)
			answered[a.status]++
			if a.status != http.StatusOK {
				wantProblem(t, a, http.StatusServiceUnavailable, "streams_full")
				if a.header.Get("Retry-After") != "5" {
					t.Errorf("Retry-After %q, want 5", a.header.Get("Retry-After"))
				}
			}
		}
		wantStatus(t, s.call(http.MethodGet, "/v1/me", token, ""), http.StatusOK)
	}
	if answered[http.StatusOK] != places {
		t.Errorf("streams were answered %v, want %d with 200: half of %d places", answered, places, gateway.Concurrency)
	}
}

// HEAD takes no place; like every request for a stream it counts for the quota, which
// is below what the caller may ask for altogether.
func TestStreamQuota(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	alice := i.fresh(t, "alice", nil)
	const quota = 60
	passed, alone := 0, s.alone()
	a := flood(t, func() answer {
		a := s.call(http.MethodHead, streamPath, alice, "")
		if a.status == http.StatusOK {
			passed++
		}
		return a
	})
	if places := s.keys("open:*"); len(places) > 0 {
		t.Errorf("HEAD takes places: %v", places)
	}
	if policy := a.header.Values("RateLimit-Policy"); passed < quota || passed > quota+10+quota*(s.alone()-alone) || !strings.Contains(strings.Join(policy, " "), `"stream-my-notifications";q=60;w=60`) {
		t.Errorf("%d were let through, policy %q, want %d and what came back meanwhile, by stream-my-notifications", passed, policy, quota)
	}
	s.shared(func() {
		flood(t, func() answer { return s.call(http.MethodHead, streamPath, alice, "") })
		a, _ = s.openStream(alice)
	})
	wantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
	wantStatus(t, s.call(http.MethodGet, "/v1/me", alice, ""), http.StatusOK)
}
