package functions_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/kit"
)

// link is a TCP connection to a server that a test can cut and mend.
type link struct {
	address string // of this side
	target  string

	mutex    sync.Mutex
	listener net.Listener
	open     []net.Conn
}

// newLink returns a link that is cut.
func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := &link{address: listener.Addr().String(), target: target}
	must(t, listener.Close())
	t.Cleanup(l.cut)
	return l
}

func (l *link) cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.listener != nil {
		l.listener.Close()
		l.listener = nil
	}
	for _, conn := range l.open {
		conn.Close()
	}
	l.open = nil
}

func (l *link) mend(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	must(t, err)
	l.mutex.Lock()
	l.listener = listener
	l.mutex.Unlock()
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.target)
			if err != nil {
				near.Close()
				continue
			}
			l.mutex.Lock()
			l.open = append(l.open, near, far)
			if l.listener != listener { // cut meanwhile
				near.Close()
				far.Close()
			}
			l.mutex.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
}

// through returns address with the link's in place of its host.
func through(t testing.TB, address string) (*link, string) {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	l := newLink(t, u.Host)
	u.Host = l.address
	return l, u.String()
}

// A process is alive without its stores, and ready once each has answered. Then
// it stays ready: a store that goes away shows in the answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	pool := kit.Connect(t, database)
	nats := kit.NATS(t)
	toPostgres, postgresURL := through(t, database)
	toNATS, natsURL := through(t, nats.URL())
	s := setup(t, "WAKES=false", "DATABASE_URL="+postgresURL, "NATS_URL="+natsURL)
	s.pool = pool
	ready := func(function string) answer {
		a := s.direct(function, http.MethodGet, "/health/readiness", "")
		if same := s.direct(function, http.MethodGet, "/_/ready", ""); same.status != a.status && a.status != http.StatusOK {
			// Asked a moment later, it may be ready by now, and never the other way round.
			wantStatus(t, same, http.StatusOK)
			wantStatus(t, s.direct(function, http.MethodGet, "/health/readiness", ""), http.StatusOK)
		}
		return a
	}
	live := func() {
		t.Helper()
		wantStatus(t, s.call(http.MethodGet, "/health/liveness", "", ""), http.StatusOK)
		for _, f := range functions.All {
			wantStatus(t, s.direct(f.Name, http.MethodGet, "/health/liveness", ""), http.StatusOK)
			wantStatus(t, s.direct(f.Name, http.MethodGet, "/_/health", ""), http.StatusOK)
		}
	}
	away := func(a answer) {
		t.Helper()
		wantProblem(t, a, http.StatusServiceUnavailable, "unavailable")
		if a.header.Get("Retry-After") == "" {
			t.Error("Retry-After is missing")
		}
		if strings.Contains(string(a.body), "127.0.0.1") || strings.Contains(string(a.body), "dial") {
			t.Errorf("it shows its cause: %s", a.body)
		}
	}

	live()
	for _, f := range functions.All {
		if slices.Contains(f.Stores, fn.Postgres) || slices.Contains(f.Stores, fn.NATS) || f.Name == functions.GatewayName {
			away(ready(f.Name))
		}
	}
	away(s.call(http.MethodGet, "/health/readiness", "", ""))
	away(s.grant("k1", "u_1", "item1"))
	away(s.call(http.MethodGet, "/v1/users/u_1/entitlements", s.writer, ""))

	toPostgres.mend(t)
	eventually(t, 20*time.Second, "functions that need only Postgres are ready", func() bool { return ready("grant").status == http.StatusOK })
	for _, function := range []string{"revoke", "entitlements", "deliver", "inbox", "cleanup", "transfer", "ledger", "watchdog"} {
		wantStatus(t, ready(function), http.StatusOK)
	}
	for _, function := range []string{"relay", "notify", "announce", "settle", functions.GatewayName} {
		away(ready(function))
	}
	// A broker that is away stops no grant.
	wantStatus(t, s.grant("k1", "u_1", "item1"), http.StatusOK)

	toNATS.mend(t)
	eventually(t, 20*time.Second, "all are ready", func() bool {
		return s.call(http.MethodGet, "/health/readiness", "", "").status == http.StatusOK && ready("relay").status == http.StatusOK && ready("notify").status == http.StatusOK
	})

	toPostgres.cut()
	toNATS.cut()
	live()
	for _, f := range functions.All {
		wantStatus(t, ready(f.Name), http.StatusOK)
	}
	away(s.grant("k2", "u_1", "item1"))
	away(s.revoke("k2", "u_1", "item1"))
	away(s.binary(purchase("completed", "e1", "u_1", "item1", "p_1")))
	away(s.call(http.MethodGet, "/v1/users/u_1/entitlements/item1", s.writer, ""))
	away(s.call(http.MethodGet, "/debug/notification/inbox/u_1", s.ops, ""))

	toPostgres.mend(t)
	eventually(t, 20*time.Second, "the same request is done", func() bool { return s.grant("k2", "u_1", "item1").status == http.StatusOK })
	if v := s.count(`SELECT version FROM entitlement.entitlements`); v != 2 {
		t.Errorf("version %d", v)
	}
	// Neither the password nor the user of a store is anybody's business.
	for _, secret := range []string{database, nats.URL()} {
		u, err := url.Parse(secret)
		must(t, err)
		password, _ := u.User.Password()
		if password == "" || strings.Contains(s.log.String(), password) {
			t.Errorf("the password of %s is in the log", u.Scheme)
		}
	}
}

// The database is cut off at any moment, again and again: every answered grant
// is there, and every retry ends in one effect.
func TestDatabaseComesAndGoes(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	pool := kit.Connect(t, database)
	toPostgres, postgresURL := through(t, database)
	toPostgres.mend(t)
	s := setup(t, "WAKES=false", "DATABASE_URL="+postgresURL)
	s.pool = pool

	const cuts = 8
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for range cuts {
			time.Sleep(200 * time.Millisecond) // signing in to Postgres takes a moment
			toPostgres.cut()
			time.Sleep(5 * time.Millisecond)
			toPostgres.mend(t)
		}
	})
	const keys, workers = 400, 8
	var lost sync.Map
	atOnce(workers, func(worker int) {
		for i := worker; i < keys; i += workers {
			deadline := time.Now().Add(30 * time.Second)
			for {
				a := s.grant(fmt.Sprint("k", i), "u_1", "item1")
				if a.status == http.StatusOK {
					break
				}
				if a.status != http.StatusServiceUnavailable {
					lost.Store(i, fmt.Sprint(a.status, " ", string(a.body)))
				}
				if time.Now().After(deadline) {
					t.Errorf("k%d: %d %s", i, a.status, a.body)
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	cutter.Wait()
	lost.Range(func(key, value any) bool { t.Errorf("k%v was answered %v", key, value); return true })
	for _, table := range []string{"outbox_events", "entitlement_audit", "idempotency_keys"} {
		if n := s.count(`SELECT count(*) FROM entitlement.` + table); n != keys {
			t.Errorf("%s has %d rows for %d keys", table, n, keys)
		}
	}
	if v := s.count(`SELECT version FROM entitlement.entitlements`); v != keys {
		t.Errorf("version %d", v)
	}
}
