package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

func open(t testing.TB, url, mode string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(url, 4, mode, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Each error means that Postgres is away, that the data is at fault, or neither.
func TestErrorKinds(t *testing.T) {
	t.Parallel()
	url := kit.Database(t)
	pool := open(t, url, "cache_statement")
	closed := open(t, url, "cache_statement")
	closed.Close()
	full := kit.Connect(t, url+"&pool_max_conns=1")
	taken, err := full.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Release()
	run := func(p *pgxpool.Pool, sql string, args ...any) error {
		_, err := p.Exec(t.Context(), sql, args...)
		return err
	}
	for name, test := range map[string]struct {
		err       error
		away, bad bool
	}{
		"none":             {nil, false, false},
		"no server":        {run(open(t, "postgres://u:p@127.0.0.1:1/x", "cache_statement"), `SELECT`), true, false},
		"no such host":     {run(open(t, "postgres://u:p@no-such-host.invalid/x", "cache_statement"), `SELECT`), true, false},
		"wrong password":   {run(open(t, regexp.MustCompile(`//.*@`).ReplaceAllString(url, "//nobody:wrong@"), "cache_statement"), `SELECT`), true, false},
		"no such database": {run(open(t, strings.Replace(url, "?", "_none?", 1), "cache_statement"), `SELECT`), true, false},
		"closed pool":      {run(closed, `SELECT`), true, false},
		"all connections taken": {func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := full.Exec(ctx, `SELECT`)
			return err
		}(), true, false},
		"terminated":        {run(pool, `SELECT pg_terminate_backend(pg_backend_pid())`), true, false},
		"statement timeout": {run(kit.Connect(t, url+"&statement_timeout=10"), `SELECT pg_sleep(5)`), true, false},
		"read-only":         {run(kit.Connect(t, url+"&default_transaction_read_only=on"), `CREATE TABLE x ()`), true, false},
		"duplicate":         {run(pool, `INSERT INTO notification.processed_events SELECT '0190a5a4-0000-7000-8000-000000000001' FROM generate_series(1, 2)`), false, true},
		"division by zero":  {run(pool, `SELECT 1/0`), false, true},
		"NUL":               {run(pool, `SELECT $1::text`, "\x00"), false, true},
		"no such table":     {run(pool, `SELECT FROM nowhere`), false, false},
		"syntax":            {run(pool, `SELEKT`), false, false},
		"forbidden":         {run(pool, `SET ROLE pg_read_all_data; SET default_transaction_read_only = off; DROP SCHEMA notification CASCADE`), false, false},
		"another error":     {errors.New("something"), false, false},
	} {
		if away, bad := postgres.Unavailable(test.err), postgres.BadData(test.err); away != test.away || bad != test.bad {
			t.Errorf("%s: away %t, want %t; bad data %t, want %t: %v", name, away, test.away, bad, test.bad, test.err)
		}
		wrapped := postgres.Wrap("test", test.err)
		if (wrapped == nil) != (test.err == nil) || (fault.Of(wrapped) == fault.Unavailable) != test.away || !errors.Is(wrapped, test.err) && test.err != nil {
			t.Errorf("%s is wrapped as %v", name, wrapped)
		}
	}
}

// A backend is killed, and its connection with it: the pool opens another one.
func TestPoolSurvivesTerminatedBackends(t *testing.T) {
	t.Parallel()
	url := kit.Database(t)
	pool := open(t, url, "cache_statement")
	killer := kit.Connect(t, url)
	for range 5 {
		if _, err := pool.Exec(t.Context(), `SELECT 1`); err != nil && !postgres.Unavailable(err) {
			t.Fatal(err)
		}
		if _, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range 5 {
		if _, err = pool.Exec(t.Context(), `SELECT 1`); err == nil {
			return
		}
	}
	t.Error(err)
}

// idle opens n connections of a pool, and leaves them in it.
func idle(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	var held []*pgxpool.Conn
	for range n {
		c, err := pool.Acquire(t.Context())
		kit.Must(t, err)
		held = append(held, c)
	}
	for _, c := range held {
		c.Release()
	}
}

// failover makes new sessions of a database read-only, as during a failover, or lets them
// write again when it is over.
func failover(t testing.TB, url string, over bool) {
	t.Helper()
	admin := kit.Connect(t, url)
	if _, err := admin.Exec(t.Context(), `BEGIN READ WRITE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = `+
		map[bool]string{true: "off", false: "on"}[over]+`', current_database()); END $$; COMMIT`); err != nil {
		t.Fatal(err)
	}
}

// A pool does not keep connections that were opened while sessions were read-only: one
// write is answered Unavailable, the next one succeeds.
func TestReadOnlyConnectionsAreDropped(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		url := kit.Database(t)
		if _, err := kit.Connect(t, url).Exec(t.Context(), `CREATE TABLE written ()`); err != nil {
			t.Fatal(err)
		}
		failover(t, url, false)
		pool := open(t, url+"&target_session_attrs=any", mode)
		idle(t, pool, 4)
		failover(t, url, true)
		refused := 0
		for range 8 {
			if _, err := pool.Exec(t.Context(), `INSERT INTO written DEFAULT VALUES`); err != nil {
				refused++
				if fault.Of(postgres.Wrap("write", err)) != fault.Unavailable {
					t.Errorf("%s: a write to a read-only session is answered %v, want fault.Unavailable", mode, err)
				}
			}
		}
		if refused != 1 {
			t.Errorf("%s: %d of 8 writes were refused, want the first only", mode, refused)
		}
	}
}

// The machine of a server has gone without a word: one of its connections is found to be
// silent, and none of the others costs a statement its time.
func TestSilentConnectionsAreDropped(t *testing.T) {
	t.Parallel()
	const size = 16
	database := kit.Database(t)
	gone, first := kit.Through(t, database)
	_, second := kit.Through(t, database)
	u, err := url.Parse(second)
	kit.Must(t, err)
	both, err := url.Parse(first)
	kit.Must(t, err)
	both.Host += "," + u.Host
	pool, err := postgres.Open(both.String()+"&connect_timeout=1", size, "cache_statement", nil)
	kit.Must(t, err)
	t.Cleanup(pool.Close)
	idle(t, pool, size)
	gone.Hang()
	kit.Pause(1100 * time.Millisecond) // a younger one is not asked
	began := time.Now()
	for range size {
		ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
		defer cancel()
		_, err := pool.Exec(ctx, `SELECT`)
		kit.Must(t, err)
	}
	if took := time.Since(began); took > size*time.Second/2 {
		t.Errorf("%d statements took %s, want one second for an old connection and one for the first host", size, took)
	}
}

// A caller that gives up while a connection is asked whether it lives closes none.
func TestGivenUpBeforeItsConnectionAnswers(t *testing.T) {
	t.Parallel()
	const size = 4
	link, url := kit.Through(t, kit.Database(t))
	pool := open(t, url, "cache_statement")
	idle(t, pool, size)
	kit.Pause(1100 * time.Millisecond) // a younger one is not asked
	link.Slow(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := pool.Exec(ctx, `SELECT`); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller gets %v; this test shows nothing", err)
	}
	if n := pool.Stat().TotalConns(); n != size {
		t.Errorf("%d of %d connections are left", n, size)
	}
}

// Without target_session_attrs in the URL a pool uses no read-only connection, and works
// again as soon as the server can write.
func TestOnlyServersThatWrite(t *testing.T) {
	t.Parallel()
	url := kit.Database(t)
	failover(t, url, false)
	pool := open(t, url, "cache_statement")
	if _, err := pool.Exec(t.Context(), `SELECT`); !postgres.Unavailable(err) {
		t.Errorf("with a read-only session: %v, want an error that Postgres is away", err)
	}
	if _, err := open(t, url+"&target_session_attrs=any", "cache_statement").Exec(t.Context(), `SELECT`); err != nil {
		t.Errorf("target_session_attrs=any of the URL is not respected: %v", err)
	}
	failover(t, url, true)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE written ()`); err != nil {
		t.Errorf("after the failover: %v", err)
	}
	if c := pool.Config(); c.MaxConnLifetime > 5*time.Minute || c.MaxConnLifetimeJitter == 0 {
		t.Errorf("connections live for %s and %s more at most, want at most 5m and jitter", c.MaxConnLifetime, c.MaxConnLifetimeJitter)
	}
}

// sessions counts the sessions whose statement waits in that way.
func sessions(t *testing.T, admin *pgxpool.Pool, waits string) (n int) {
	t.Helper()
	if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type || ' ' || wait_event LIKE $1`, waits).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A caller does not wait for a commit that waits for its standby. The commit must not show
// before the standby has it: a failover would lose what was seen.
func TestGivenUpCommitStaysHidden(t *testing.T) {
	t.Parallel()
	server := kit.OwnPostgres(t, true)
	t.Cleanup(func() { kit.Must(t, server.Kill()) }) // what waits for a standby would hold up its end
	admin, pool := kit.Connect(t, server.URL()), open(t, server.URL(), "cache_statement")
	for _, sql := range []string{"CREATE TABLE written ()", "ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()"} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	kit.Eventually(t, "commits wait for a standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, `INSERT INTO written DEFAULT VALUES`)
		return err != nil
	})
	kit.Eventually(t, "the connection is given up", func() bool { return pool.Stat().TotalConns() == 0 })
	if waiting := sessions(t, admin, "IPC SyncRep"); waiting != 1 {
		t.Errorf("%d commits wait for the standby after their caller has gone, want 1", waiting)
	}
}

// A statement ends soon after its caller has gone, although nobody cancels it.
func TestGivenUpStatementEnds(t *testing.T) {
	t.Parallel()
	url := kit.Database(t)
	admin := kit.Connect(t, url)
	pool := open(t, url, "cache_statement")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SET statement_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { _, err := conn.Exec(ctx, `SELECT pg_sleep(1000)`); done <- err }()
	kit.Eventually(t, "the statement runs", func() bool { return sessions(t, admin, "% PgSleep") == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("its caller gets %v, want context.Canceled", err)
	}
	kit.Eventually(t, "the statement has ended", func() bool { return sessions(t, admin, "% PgSleep") == 0 })
}

// Transactions that lock rows in opposite orders deadlock; Retry runs them again.
func TestRetryEndsDeadlocks(t *testing.T) {
	t.Parallel()
	pool := kit.Connect(t, kit.Database(t)+"&deadlock_timeout=20")
	if _, err := pool.Exec(t.Context(), `CREATE TABLE n AS SELECT id, 0 AS v FROM generate_series(1, 2) id`); err != nil {
		t.Fatal(err)
	}
	const workers, each = 4, 5
	var conflicts int
	var mutex sync.Mutex
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for range each {
				err := postgres.Retry(t.Context(), func(ctx context.Context) error {
					err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
						for i := range 2 {
							if _, err := tx.Exec(ctx, `UPDATE n SET v = v + 1 WHERE id = $1`, 1+(w+i)%2); err != nil {
								return err
							}
						}
						return nil
					})
					if postgres.Conflicted(err) {
						mutex.Lock()
						conflicts++
						mutex.Unlock()
					}
					return err
				})
				if err != nil && !postgres.Conflicted(err) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	var low, high int
	if err := pool.QueryRow(t.Context(), `SELECT min(v), max(v) FROM n`).Scan(&low, &high); err != nil || low != high {
		t.Errorf("the rows are %d and %d, %v; want the same number", low, high, err)
	}
	t.Logf("%d deadlocks met", conflicts)
}

func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	tries := 0
	err := postgres.Retry(t.Context(), func(ctx context.Context) error {
		tries++
		_, err := pool.Exec(ctx, `DO $$ BEGIN RAISE 'met' USING ERRCODE = '40001'; END $$`)
		return err
	})
	if tries != 5 || !postgres.Conflicted(err) {
		t.Errorf("%d tries, %v; want 5 and a conflict", tries, err)
	}
	var wrapped *fault.Error
	if !errors.As(postgres.Wrap("write", err), &wrapped) || wrapped.Kind != fault.Unavailable || wrapped.RetryAfter <= 0 || !errors.Is(wrapped, err) {
		t.Errorf("a conflict that lasts is answered %v, want fault.Unavailable and when to retry", wrapped)
	}
	tries = 0
	_ = postgres.Retry(t.Context(), func(context.Context) error { tries++; return errors.New("other") })
	if tries != 1 {
		t.Errorf("after another error there were %d tries, want 1", tries)
	}
}

// A bad URL may contain a password, but the error does not.
func TestOpenShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hunter2@[x", "postgres://u:hunter2@h:port/db", "u:hunter2@"} {
		if _, err := postgres.Open(url, 1, "exec", nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want an error without the password", url, err)
		}
	}
	if _, err := postgres.Open("postgres://u:hunter2@h/db", 1, "quickly", nil); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "quickly") {
		t.Errorf("an unknown mode: %v, want an error that names it", err)
	}
}

// No statement may run for ever, and no transaction may wait for ever for its process.
func TestTimeoutsAreSet(t *testing.T) {
	t.Parallel()
	pool := open(t, kit.Database(t), "cache_statement")
	for name, want := range map[string]string{"statement_timeout": "10s", "idle_in_transaction_session_timeout": "5s"} {
		var limit string
		if err := pool.QueryRow(t.Context(), `SHOW `+name).Scan(&limit); err != nil || limit != want {
			t.Errorf("%s is %s, %v; want %s", name, limit, err, want)
		}
	}
}
