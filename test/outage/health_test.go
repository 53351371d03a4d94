package outage_test

import (
	"fmt"
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
	"github.com/miniserversystem/miniserver/test/system"
)

// A process is alive without its stores, and ready once each has answered. Then it stays
// ready: an outage shows in the answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	pool := kit.Connect(t, database)
	nats := kit.NATS(t)
	toPostgres, postgresURL := kit.Through(t, database)
	toNATS, natsURL := kit.Through(t, nats.URL())
	toPostgres.Cut()
	toNATS.Cut()
	s := system.Start(t, "WAKES=false", "DATABASE_URL="+postgresURL, "NATS_URL="+natsURL)
	s.Pool = pool
	ready := func(function string) system.Answer {
		a := s.Direct(function, http.MethodGet, "/health/readiness", "")
		if same := s.Direct(function, http.MethodGet, "/_/ready", ""); same.Status != a.Status && a.Status != http.StatusOK {
			// The later request may find it ready already, never the other way round.
			system.WantStatus(t, same, http.StatusOK)
			system.WantStatus(t, s.Direct(function, http.MethodGet, "/health/readiness", ""), http.StatusOK)
		}
		return a
	}
	live := func() {
		t.Helper()
		system.WantStatus(t, s.Call(http.MethodGet, "/health/liveness", "", ""), http.StatusOK)
		for _, f := range functions.All {
			system.WantStatus(t, s.Direct(f.Name, http.MethodGet, "/health/liveness", ""), http.StatusOK)
			system.WantStatus(t, s.Direct(f.Name, http.MethodGet, "/_/health", ""), http.StatusOK)
		}
	}
	away := func(a system.Answer) {
		t.Helper()
		system.WantProblem(t, a, http.StatusServiceUnavailable, "unavailable")
		if a.Header.Get("Retry-After") == "" {
			t.Error("Retry-After is missing")
		}
		if strings.Contains(string(a.Body), "127.0.0.1") || strings.Contains(string(a.Body), "dial") {
			t.Errorf("the answer shows its cause: %s", a.Body)
		}
	}

	live()
	for _, f := range functions.All {
		if slices.Contains(f.Stores, fn.Postgres) || slices.Contains(f.Stores, fn.NATS) || f.Name == functions.GatewayName {
			away(ready(f.Name))
		}
	}
	away(s.Call(http.MethodGet, "/health/readiness", "", ""))
	away(s.Grant("k1", "u_1", "item1"))
	away(s.Call(http.MethodGet, "/v1/users/u_1/entitlements", s.Writer, ""))

	toPostgres.Mend()
	kit.Eventually(t, "functions that need only Postgres are ready", func() bool { return ready("grant").Status == http.StatusOK })
	for _, function := range []string{"revoke", "entitlements", "deliver", "inbox", "cleanup", "transfer", "ledger", "watchdog"} {
		system.WantStatus(t, ready(function), http.StatusOK)
	}
	for _, function := range []string{"relay", "notify", "announce", "settle", functions.GatewayName} {
		away(ready(function))
	}
	// Grants do not need the broker.
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)

	toNATS.Mend()
	kit.Eventually(t, "all functions are ready", func() bool {
		return s.Call(http.MethodGet, "/health/readiness", "", "").Status == http.StatusOK && ready("relay").Status == http.StatusOK && ready("notify").Status == http.StatusOK
	})

	toPostgres.Cut()
	toNATS.Cut()
	live()
	for _, f := range functions.All {
		system.WantStatus(t, ready(f.Name), http.StatusOK)
	}
	away(s.Grant("k2", "u_1", "item1"))
	away(s.Revoke("k2", "u_1", "item1"))
	away(s.Binary(system.Purchase("completed", "e1", "u_1", "item1", "p_1")))
	away(s.Call(http.MethodGet, "/v1/users/u_1/entitlements/item1", s.Writer, ""))
	away(s.Call(http.MethodGet, "/debug/notification/inbox/u_1", s.Operator, ""))

	toPostgres.Mend()
	kit.Eventually(t, "the same request is done", func() bool { return s.Grant("k2", "u_1", "item1").Status == http.StatusOK })
	if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != 2 {
		t.Errorf("version %d, want 2", v)
	}
	// A store's password and user are never logged.
	for _, secret := range []string{database, nats.URL()} {
		u, err := url.Parse(secret)
		kit.Must(t, err)
		password, _ := u.User.Password()
		if password == "" || strings.Contains(s.Log.String(), password) {
			t.Errorf("the password of %s is in the log", u.Scheme)
		}
	}
}

// The database is cut off again and again, at any moment: every answered grant is stored,
// and every retry ends in one effect.
func TestDatabaseComesAndGoes(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	pool := kit.Connect(t, database)
	toPostgres, postgresURL := kit.Through(t, database)
	s := system.Start(t, "WAKES=false", "DATABASE_URL="+postgresURL)
	s.Pool = pool

	const cuts = 8
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for range cuts {
			kit.Pause(200 * time.Millisecond) // connecting to Postgres takes a moment
			toPostgres.Cut()
			kit.Pause(5 * time.Millisecond)
			toPostgres.Mend()
		}
	})
	const keys, workers = 400, 8
	var unexpected sync.Map
	system.AtOnce(workers, func(worker int) {
		for i := worker; i < keys; i += workers {
			deadline := time.Now().Add(30 * time.Second)
			for {
				a := s.Grant(fmt.Sprint("k", i), "u_1", "item1")
				if a.Status == http.StatusOK {
					break
				}
				if a.Status != http.StatusServiceUnavailable {
					unexpected.Store(i, fmt.Sprint(a.Status, " ", string(a.Body)))
				}
				if time.Now().After(deadline) {
					t.Errorf("k%d is answered %d %s to the end", i, a.Status, a.Body)
					break
				}
				kit.Pause(10 * time.Millisecond)
			}
		}
	})
	cutter.Wait()
	unexpected.Range(func(key, value any) bool {
		t.Errorf("k%v was answered %v, want 200 or 503", key, value)
		return true
	})
	for _, table := range []string{"outbox_events", "entitlement_audit", "idempotency_keys"} {
		if n := s.Count(`SELECT count(*) FROM entitlement.` + table); n != keys {
			t.Errorf("%s has %d rows for %d keys", table, n, keys)
		}
	}
	if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != keys {
		t.Errorf("version %d, want %d", v, keys)
	}
}
