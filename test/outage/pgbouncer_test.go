package outage_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/pgbouncer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// pooled starts a system whose connections to Postgres, far more than Postgres has, go
// through a PgBouncer in transaction mode.
func pooled(t *testing.T, dir string, environment ...string) (*system.System, *system.People, *pgbouncer.Server) {
	t.Helper()
	bouncer := kit.PgBouncer(t, dir, 4)
	direct := kit.Database(t)
	through, err := bouncer.URL(direct)
	kit.Must(t, err)
	s, people := system.StartWithPeople(t, append([]string{"DATABASE_URL=" + through, "POSTGRES_POOL_SIZE=32"}, environment...)...)
	s.Pool = kit.Connect(t, direct)
	return s, people, bouncer
}

// Grants and transfers through four connections: what a statement leaves in a session is
// missing, or another's, in the next.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	t.Run("one key at once", func(t *testing.T) {
		t.Parallel()
		s, _, _ := pooled(t, t.TempDir(), "POSTGRES_EXEC_MODE=exec", "WAKES=false")
		system.OneKeyAtOnce(t, s)
		for _, function := range []string{"relay", "notify", "deliver"} {
			if report := s.Tick(function); report.Done != 1 {
				t.Errorf("the tick of %s reports %+v, want one done", function, report)
			}
		}
	})
	t.Run("money moves", func(t *testing.T) {
		t.Parallel()
		s, people, _ := pooled(t, t.TempDir(), "POSTGRES_EXEC_MODE=exec")
		system.MoneyMoves(t, s, people)
		for _, function := range []string{"watchdog", "ledger", "reconcile", "cleanup"} {
			s.Tick(function)
		}
	})
}

// PgBouncer drops all its connections while 32 clients write, and comes back: a write is
// answered 200 or 503 with Retry-After, and in the end each is done and delivered once.
func TestPgBouncerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _, bouncer := pooled(t, dir, "POSTGRES_EXEC_MODE=exec")
	const clients, each = 32, 8
	var done, refused atomic.Int64
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for i := range each {
				granted := kit.Soon(func() bool {
					a := s.Grant(fmt.Sprintf("k%d-%d", c, i), fmt.Sprint("u_", c), fmt.Sprint("item", i))
					if a.Status == http.StatusOK {
						done.Add(1)
						return true
					}
					refused.Add(1)
					if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
						t.Errorf("a grant is answered %d %s, want 200, or 503 with Retry-After", a.Status, a.Body)
					}
					return false
				})
				if !granted {
					t.Errorf("grant %d of client %d is never done", i, c)
				}
			}
		})
	}
	kit.Eventually(t, "some are done", func() bool { return done.Load() > clients*each/8 })
	kit.Must(t, bouncer.Stop())
	kit.Eventually(t, "some are refused", func() bool { return refused.Load() > 0 })
	kit.PgBouncer(t, dir, 4)
	group.Wait()
	t.Logf("%d done, %d refused", done.Load(), refused.Load())
	if n := s.Count(`SELECT count(*) FROM entitlement.entitlements WHERE version = 1`); n != clients*each {
		t.Errorf("%d entitlements at version 1, want %d", n, clients*each)
	}
	kit.Eventually(t, "all are delivered", func() bool {
		s.Tick("relay")
		s.Tick("notify")
		s.Tick("deliver")
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == clients*each
	})
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != clients*each {
		t.Errorf("%d notifications, want %d", n, clients*each)
	}
}

// The default mode sends its limits when a session begins, which this PgBouncer refuses.
// The log says what to set.
func TestPgBouncerNeedsExec(t *testing.T) {
	t.Parallel()
	s, _, _ := pooled(t, t.TempDir())
	if a := s.Call(http.MethodGet, "/health/readiness", "", ""); a.Status != http.StatusServiceUnavailable {
		t.Errorf("answered %d %s, want 503", a.Status, a.Body)
	}
	if a := s.Grant("k1", "u_1", "item1"); a.Status != http.StatusServiceUnavailable {
		t.Errorf("answered %d %s, want 503", a.Status, a.Body)
	}
	kit.Eventually(t, "the log names POSTGRES_EXEC_MODE", func() bool { return strings.Contains(s.Log.String(), "set POSTGRES_EXEC_MODE=exec") })
}
