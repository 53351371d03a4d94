//go:build conformance && linux

package conformance

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// queue-proxy admits as many requests to a function as its Service allows, queues ten
// times as many, and refuses the rest, which clients get as a problem.
func TestQueueProxyConcurrency(t *testing.T) {
	t.Parallel()
	const concurrency, admitted, sent = 2, 22, 30
	s := newScene(t, onQueueProxy(func(function string, s *podSettings) {
		if function == "grant" {
			s.concurrency = concurrency
		}
	}))
	s.start(changing...)
	s.send(s.grant("before", "u_limit", "item1")).want(t, http.StatusOK)
	tx, err := s.pool.Begin(t.Context())
	kit.Must(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE entitlement.entitlements IN EXCLUSIVE MODE`)
	kit.Must(t, err)
	answers := make(chan answer, sent)
	for i := range sent {
		request := s.grant(fmt.Sprint("limit", i), "u_limit", fmt.Sprint("item", i)) // those of one item would take turns
		go func() {
			a, err := s.try(request)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	// The refused requests are answered while the others wait.
	for range sent - admitted {
		select {
		case a := <-answers:
			a.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
		case <-time.After(startWithin):
			t.Fatal("more requests are admitted than the Service allows")
		}
	}
	if n := s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); n != concurrency {
		t.Errorf("%d requests run at once, want %d", n, concurrency)
	}
	kit.Must(t, tx.Rollback(t.Context()))
	for range admitted {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("an admitted request is answered %d %s, want 200", a.status, a.body)
		}
	}
	if n := s.count(`SELECT sum(version) FROM entitlement.entitlements WHERE user_id = 'u_limit'`); n != admitted+1 {
		t.Errorf("%d grants, want %d", n, admitted+1)
	}
}

// A Service's timeout that is shorter than the function's ends a request first, and the
// client still gets a problem.
func TestQueueProxyTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	s := newScene(t, onQueueProxy(func(function string, s *podSettings) {
		if function == "grant" {
			s.timeout = timeout
		}
	}))
	s.start(changing...)
	s.send(s.grant("before", "u_timeout", "item1")).want(t, http.StatusOK)
	s.postgres.Hang()
	a := s.send(s.grant("timeout", "u_timeout", "item1"))
	a.wantProblem(t, http.StatusGatewayTimeout, "timeout")
	if a.took < timeout || a.took > timeout+slack {
		t.Errorf("the answer took %s, want the timeout of %s", a.took, timeout)
	}
	s.postgres.Mend()
}
