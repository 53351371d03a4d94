package conformance

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/test/kit"
)

// changing are the functions that a grant needs.
var changing = []string{"gateway", "grant"}

// A process is alive without its stores and ready once they have answered, without a
// restart.
func (s *scene) probes() string {
	s.nats.Mend()
	s.begin(changing...)
	if status := s.probe(Readiness); status != http.StatusServiceUnavailable {
		s.t.Errorf("readiness without Postgres is %d, want 503", status)
	}
	if status := s.probe(Liveness); status != http.StatusOK {
		s.t.Errorf("liveness without Postgres is %d, want 200", status)
	}
	s.send(s.grant("probes", "u_probes", "item1")).wantProblem(s.t, http.StatusServiceUnavailable, "unavailable")
	s.postgres.Mend()
	kit.Within(s.t, startWithin, "ready once Postgres is there", func() bool { return s.probe(Readiness) == http.StatusOK })
	s.send(s.grant("probes", "u_probes", "item1")).want(s.t, http.StatusOK)
	return "503, then 200"
}

// slack is added to time limits for a busy machine.
const slack = 5 * time.Second

// A request whose store hangs ends with a problem after the function's timeout, and is
// done once when it is sent again.
func (s *scene) deadline() string {
	grant, err := functions.Named("grant")
	kit.Must(s.t, err)
	s.start(changing...)
	s.send(s.grant("before", "u_deadline", "item1")).want(s.t, http.StatusOK)
	s.postgres.Hang()
	a := s.send(s.grant("deadline", "u_deadline", "item1"))
	p, ok := problem.Parse(a.body)
	if !ok || a.header.Get("Content-Type") != problem.ContentType || a.status != http.StatusGatewayTimeout && a.status != http.StatusServiceUnavailable {
		s.t.Errorf("answered %d %v %s, want a problem with 503 or 504", a.status, a.header, a.body)
	}
	if a.took > grant.Timeout+slack {
		s.t.Errorf("the answer took %s, with a timeout of %s", a.took, grant.Timeout)
	}
	s.postgres.Mend()
	kit.Within(s.t, startWithin, "done when it is sent again", func() bool {
		return s.send(s.grant("deadline", "u_deadline", "item1")).status == http.StatusOK
	})
	if n := s.count(`SELECT version FROM entitlement.entitlements WHERE user_id = 'u_deadline'`); n != 2 {
		s.t.Errorf("version %d", n)
	}
	return fmt.Sprintf("%d %s after %.1f s", a.status, p.Code, a.took.Seconds())
}

// After SIGTERM the request in flight is answered, new connections are refused, and the
// processes end with status 0.
func (s *scene) drain() string {
	s.start(changing...)
	s.send(s.grant("before", "u_drain", "item1")).want(s.t, http.StatusOK)
	// This lock on the row holds up the grant.
	tx, err := s.pool.Begin(s.t.Context())
	kit.Must(s.t, err)
	_, err = tx.Exec(s.t.Context(), `SELECT 1 FROM entitlement.entitlements WHERE user_id = 'u_drain' FOR UPDATE`)
	kit.Must(s.t, err)
	type result struct {
		answer
		err error
	}
	answered := make(chan result, 1)
	request := s.grant("drain", "u_drain", "item1")
	go func() {
		a, err := s.try(request)
		answered <- result{a, err}
	}()
	kit.Within(s.t, startWithin, "the grant waits for the row", func() bool {
		return s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	s.instance.Terminate()
	began := time.Now()
	if s.adapter.Quiet > 0 {
		kit.Within(s.t, slack, "not ready any more", func() bool { return s.probe(Readiness) == http.StatusServiceUnavailable })
	}
	for _, address := range s.instance.Addresses() {
		kit.Within(s.t, slack, address+" refuses connections", func() bool { return !listens(address) })
	}
	select {
	case early := <-answered:
		s.t.Fatalf("the grant did not wait for the row: answered %d %s %v", early.status, early.body, early.err)
	default:
	}
	kit.Must(s.t, tx.Rollback(s.t.Context()))
	got := <-answered
	if kit.Must(s.t, got.err); got.status != http.StatusOK {
		s.t.Errorf("the request in flight is answered %d %s, want 200", got.status, got.body)
	}
	kit.Must(s.t, s.instance.Wait(s.within()))
	return fmt.Sprintf("answered, status 0 after %.1f s", time.Since(began).Seconds())
}

func listens(address string) bool {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// A function that is not in the registry is refused with a list of those that are.
func (s *scene) unknownFunction() string {
	return s.refuses("FUNCTION", "nope", `there is no function "nope"; FUNCTION is one of gateway, `)
}

// An invalid setting is refused by name.
func (s *scene) malformed() string {
	return s.refuses("TICK_BUDGET", "soon", "TICK_BUDGET is not a valid")
}

func (s *scene) refuses(name, value, says string) string {
	s.t.Helper()
	s.environment[name] = value
	status, printed := s.adapter.Refuse(s.t, s.environment)
	line := strings.TrimSuffix(printed, "\n")
	if status <= 0 || strings.Contains(line, "\n") || !strings.HasPrefix(line, "miniserver: ") || !strings.Contains(line, says) {
		s.t.Errorf("exit status %d, printed %q, want one line with %q", status, printed, says)
	}
	return fmt.Sprintf("status %d, one line", status)
}
