package transfer_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// arena is a database in which a store meets faults. They hit setup.Store, which uses
// connections as a function opens them; they never hit setup.pool and calm.
type arena struct {
	setup
	*witness
	url     string
	calm    *transfer.Store
	victims *pgxpool.Pool // of setup.Store
}

// victim names the connections that faults may hit.
const victim = "victim"

// newArena creates a database. The store connects to the URL that through returns, or
// directly if through is nil.
func newArena(t *testing.T, size int32, mode string, through func(url string) string) *arena {
	t.Helper()
	url := kit.Database(t)
	calm := kit.Connect(t, url)
	if _, err := calm.Exec(t.Context(), watchEndings); err != nil {
		t.Fatal(err)
	}
	a := &arena{setup{nil, calm, t}, newWitness(), url, transfer.NewStore(calm), nil}
	if through != nil {
		url = through(url)
	}
	a.victims = victims(t, url, size, mode)
	a.Store = transfer.NewStore(a.victims)
	return a
}

func victims(t *testing.T, url string, size int32, mode string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(url+"&application_name="+victim, size, mode, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// wish is a transfer with a key of its own.
func (a *arena) wish(owner string, from, to int64, text string) wish {
	a.t.Helper()
	key, err := a.calm.IssueKey(a.t.Context(), owner)
	if err != nil {
		a.t.Error(err)
	}
	return wish{client: owner, key: key.Key, owner: owner, from: from, to: to, amount: amount(a.t, text)}
}

// drain ends orphaned requests and writes the ledger, when no caller is left. A TX1 whose
// caller is gone may run until its locks time out.
func (a *arena) drain() {
	a.t.Helper()
	kit.Eventually(a.t, "nothing is in progress", func() bool {
		if _, _, err := a.calm.EndOrphans(a.t.Context(), 0); err != nil {
			a.t.Fatal(err)
		}
		return a.one(`SELECT count(*) FROM integration.idempotency_key WHERE status = 'IN_PROGRESS'`) == "0"
	})
	for more := true; more; {
		report, err := a.calm.WriteLedger(a.t.Context())
		if err != nil {
			a.t.Fatal(err)
		}
		more = report.More
	}
}

// found drains and returns all problems.
func (a *arena) found() []string {
	a.t.Helper()
	a.drain()
	list, err := a.problems(a.t.Context(), a.pool)
	if err != nil {
		a.t.Fatal(err)
	}
	return list
}

// mustBeRight fails the test with all problems that found returns.
func (a *arena) mustBeRight() {
	a.t.Helper()
	list := a.found()
	for _, problem := range list[:min(len(list), 20)] {
		a.t.Error(problem)
	}
	if len(list) > 20 {
		a.t.Errorf("and %d more", len(list)-20)
	}
}

// waiting returns how many statements of the store wait for a lock.
func (a *arena) waiting() string {
	a.t.Helper()
	return a.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock'`, victim)
}

// hold locks rows in a transaction of its own until release is called or the test ends.
func (a *arena) hold(sql string, args ...any) (release func()) {
	a.t.Helper()
	tx, err := a.pool.Begin(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	a.t.Cleanup(release)
	if _, err := tx.Exec(a.t.Context(), sql, args...); err != nil {
		a.t.Fatal(err)
	}
	return release
}
