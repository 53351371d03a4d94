//go:build conformance && linux

package conformance

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// queue-proxy lets as many requests to a function as its Service says, keeps ten
// times as many waiting, and refuses the rest, which clients get as a problem.
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
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM entitlement.entitlements WHERE user_id = 'u_limit' FOR UPDATE`)
	kit.Must(t, err)
	answers := make(chan answer, sent)
	for i := range sent {
		request := s.grant(fmt.Sprint("limit", i), "u_limit", "item1")
		go func() {
			a, err := s.try(request)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	// Those that are refused are answered while the others wait.
	for range sent - admitted {
		select {
		case a := <-answers:
			a.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
		case <-time.After(startWithin):
			t.Fatal("more are let in")
		}
	}
	if n := s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); n != concurrency {
		t.Errorf("%d at once", n)
	}
	kit.Must(t, tx.Rollback(t.Context()))
	for range admitted {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("one that was let in: %d %s", a.status, a.body)
		}
	}
	if v := s.count(`SELECT version FROM entitlement.entitlements WHERE user_id = 'u_limit'`); v != admitted+1 {
		t.Errorf("version %d", v)
	}
}

// A Service's timeout that is shorter than the function's ends a request first, and
// the client gets a problem all the same.
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
		t.Errorf("it took %s", a.took)
	}
	s.postgres.Mend()
}
