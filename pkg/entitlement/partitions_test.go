package entitlement_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/test/kit"
)

func (f *fixture) partitions() []string {
	f.t.Helper()
	rows, err := f.pool.Query(f.ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'entitlement.entitlement_audit'::regclass ORDER BY 1`)
	if err != nil {
		f.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

const defaultPartition = "entitlement_audit_default"

// bare drops all partitions but DEFAULT, and the constraints that cleanup gave it, as
// if cleanup had never run.
func (f *fixture) bare() {
	f.t.Helper()
	for _, name := range f.partitions() {
		if name != defaultPartition {
			f.exec(`DROP TABLE entitlement.` + name)
			f.exec(`ALTER TABLE entitlement.entitlement_audit_default DROP CONSTRAINT IF EXISTS ` + name)
		}
	}
}

// audit inserts an audit row of the given time.
func (f *fixture) audit(at time.Time) {
	f.t.Helper()
	f.exec(`INSERT INTO entitlement.entitlement_audit VALUES (gen_random_uuid(), $1, 'u', 'i', 'grant', 'ACTIVE', 1, 'r', 'p', 'c', 'k', gen_random_uuid())`, at)
}

// month returns the start of a month, n months after this one by the database's clock.
func (f *fixture) month(n int) time.Time {
	f.t.Helper()
	return query[time.Time](f, `SELECT date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + make_interval(months => $1)`, n).UTC()
}

func (f *fixture) partition(month int) string {
	f.t.Helper()
	return "entitlement_audit_y" + f.month(month).Format("2006m01")
}

func (f *fixture) ensure(made, dropped, skipped int) {
	f.t.Helper()
	counts, err := f.store.EnsureAudit(f.ctx, keep)
	if err != nil || counts.PartitionsMade != made || counts.PartitionsDropped != dropped || counts.PartitionsSkipped != skipped {
		f.t.Fatalf("%+v, %v; want %d made, %d dropped, %d skipped", counts, err, made, dropped, skipped)
	}
}

// excluded returns how many months DEFAULT refuses.
func (f *fixture) excluded() int {
	f.t.Helper()
	return query[int](f, `SELECT count(*) FROM pg_constraint WHERE conrelid = 'entitlement.entitlement_audit_default'::regclass AND conname LIKE 'entitlement_audit_y%'`)
}

// The first run makes this month's partition and three more; the second makes none.
func TestPartitionsAreMadeAhead(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bare()
	f.ensure(4, 0, 0)
	f.ensure(0, 0, 0)
	want := []string{defaultPartition}
	for n := range 4 {
		want = append(want, f.partition(n))
	}
	slices.Sort(want)
	if got := f.partitions(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.grant("in its month")
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit_default`); n != 0 {
		t.Errorf("%d rows in DEFAULT, want none", n)
	}
}

// Months with rows in DEFAULT stay there. Each other month gets its partition, and
// Postgres does not read DEFAULT for that, while grants would wait.
func TestPartitionsBesideRowsInDefault(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bare()
	f.grant("in DEFAULT")
	f.audit(f.month(1))
	f.audit(f.month(2).Add(-time.Microsecond))

	var mutex sync.Mutex
	proofs := 0
	config := f.pool.Config()
	config.ConnConfig.RuntimeParams["client_min_messages"] = "debug1"
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		mutex.Lock()
		defer mutex.Unlock()
		if strings.Contains(n.Message, "is implied by existing constraints") && strings.Contains(n.Message, defaultPartition) {
			proofs++
		}
	}
	pool, err := pgxpool.NewWithConfig(f.ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	setupOn(t, pool).ensure(2, 0, 2)
	if mutex.Lock(); proofs != 2 {
		t.Errorf("for %d partitions Postgres knew that DEFAULT has no row of theirs, want 2: it read DEFAULT under the lock", proofs)
	}
	mutex.Unlock()
	f.ensure(0, 0, 2)
	if got, want := f.partitions(), []string{defaultPartition, f.partition(2), f.partition(3)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := f.excluded(); n != 0 {
		t.Errorf("DEFAULT refuses %d months afterwards, want none", n)
	}
	f.grant("still in DEFAULT")
	if history, _, err := f.store.History(f.ctx, "u_1", "item1", "", 10); err != nil || len(history) != 2 {
		t.Errorf("history has %d changes, want 2; %v", len(history), err)
	}
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit_default`); n != 4 {
		t.Errorf("%d rows in DEFAULT, want 4", n)
	}
}

// A cleanup that was killed before it made a partition leaves DEFAULT refusing that month.
// The next one makes the partition or, if it cannot, lets DEFAULT take the month again.
func TestCleanupKilledOnTheWay(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bare()
	f.audit(f.month(-2))
	for _, n := range []int{0, 2} {
		f.exec(fmt.Sprintf(`ALTER TABLE entitlement.entitlement_audit_default ADD CONSTRAINT %s CHECK (occurred_at < '%s' OR occurred_at >= '%s') NOT VALID`,
			f.partition(n), f.month(n).Format(time.RFC3339), f.month(n+1).Format(time.RFC3339)))
	}
	if _, err := f.store.Grant(f.ctx, item, write("refused")); err == nil {
		t.Error("DEFAULT does not refuse this month, so this test shows nothing")
	}
	if _, err := f.store.EnsureAudit(f.ctx, keep); err != nil {
		t.Fatal(err)
	}
	if n := f.excluded(); n != 0 {
		t.Errorf("DEFAULT still refuses %d months, want none", n)
	}
	if !slices.Contains(f.partitions(), f.partition(2)) {
		t.Errorf("the partitions are %v: the month after next has none", f.partitions())
	}
	f.grant("k")
}

// Partitions of months that are too old are dropped; the month of the limit stays.
func TestOldPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bare()
	f.ensure(4, 0, 0)
	for _, n := range []int{-15, -14, -13, -12} {
		f.exec(fmt.Sprintf(`CREATE TABLE entitlement.%s PARTITION OF entitlement.entitlement_audit FOR VALUES FROM ('%s') TO ('%s')`,
			f.partition(n), f.month(n).Format(time.RFC3339), f.month(n+1).Format(time.RFC3339)))
		f.audit(f.month(n))
	}
	f.ensure(0, 2, 0)
	f.ensure(0, 0, 0)
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit`); n != 2 {
		t.Errorf("%d rows kept, want 2", n)
	}
}

// Old rows in DEFAULT, from months in which cleanup did not run, are deleted, too.
func TestOldRowsInDefaultGoToo(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.audit(f.month(-20))
	f.audit(f.month(-2))
	if _, err := f.store.EnsureAudit(f.ctx, keep); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Cleanup(f.ctx, keep); err != nil {
		t.Fatal(err)
	}
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit WHERE occurred_at < now() - interval '14 months'`); n != 0 {
		t.Errorf("%d rows are kept for longer than 13 months", n)
	}
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit`); n == 0 {
		t.Errorf("the row of two months ago is gone")
	}
}

// Several cleanups run at once beside grants: no call fails, and no row is lost.
func TestCleanupsAndGrantsAtOnce(t *testing.T) {
	t.Parallel()
	for _, rowsInDefault := range []bool{false, true} {
		t.Run(fmt.Sprint("rows in DEFAULT ", rowsInDefault), func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.bare()
			if rowsInDefault {
				f.audit(f.month(-2))
			}
			f.exec(`INSERT INTO entitlement.idempotency_keys (caller, operation, idem_key, request_hash, status_code, response_body, etag, expires_at)
				SELECT 'c', 'grant', n::text, sha256('x'), 200, '{}', '1', now() - interval '1 second' FROM generate_series(1, 1500) n`)
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					if _, err := f.store.EnsureAudit(f.ctx, keep); err != nil {
						t.Error(err)
					}
					for {
						counts, err := f.store.Cleanup(f.ctx, keep)
						if err != nil {
							t.Error(err)
						}
						if !counts.More {
							return
						}
					}
				})
			}
			for w := range 4 {
				group.Go(func() {
					for n := range 20 {
						if _, err := f.store.Grant(f.ctx, item, write(fmt.Sprint(w, "-", n))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if !slices.Contains(f.partitions(), f.partition(2)) || !slices.Contains(f.partitions(), f.partition(3)) {
				t.Errorf("the partitions are %v: months ahead are missing", f.partitions())
			}
			if n := f.excluded(); n != 0 {
				t.Errorf("DEFAULT refuses %d months afterwards", n)
			}
			if n := query[int](f, `SELECT count(DISTINCT version) FROM entitlement.entitlement_audit WHERE user_id = 'u_1'`); n != 80 {
				t.Errorf("%d versions of 80 grants are audited, want all", n)
			}
			if n := query[int](f, `SELECT count(*) FROM entitlement.idempotency_keys`); n != 80 {
				t.Errorf("%d keys, want 80", n)
			}
		})
	}
}

// A long transaction locks the audit table: cleanup gives up after a bounded time, so that
// grants do not queue up behind it.
func TestPartitionsWaitBriefly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bare()
	tx, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(f.ctx)
	if _, err := tx.Exec(f.ctx, `SELECT count(*) FROM entitlement.entitlement_audit`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := f.store.EnsureAudit(f.ctx, keep); err == nil {
		t.Error("cleanup did not wait for the lock")
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("cleanup waited %s, want 4s at most", took)
	}
	f.grant("goes on")
}

// Without any partition but DEFAULT grants still succeed.
func TestGrantsWithoutPartitions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bare()
	f.grant("k")
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit_default`); n != 1 {
		t.Errorf("%d rows in DEFAULT, want 1", n)
	}
}

// freezer stops a connection before its nth message, as SIGSTOP or a broken network would.
type freezer struct {
	left     atomic.Int64
	frozen   chan struct{}
	released chan struct{}
}

type freezingConn struct {
	net.Conn
	*freezer
}

func (c freezingConn) Write(b []byte) (int, error) {
	switch n := c.left.Add(-1); {
	case n == 0:
		close(c.frozen)
		fallthrough
	case n < 0:
		<-c.released
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Cleanup freezes between any two of its messages: a grant still succeeds within the
// promised two seconds.
func TestFrozenCleanupHoldsUpNoGrant(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		for _, pooled := range []bool{false, true} {
			if pooled && mode != pgx.QueryExecModeExec {
				continue
			}
			t.Run(fmt.Sprint(mode, ", PgBouncer ", pooled), func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				f.audit(f.month(-2))
				url := f.pool.Config().ConnString()
				if pooled {
					var err error
					if url, err = kit.PgBouncer(t, t.TempDir(), 4).URL(url); err != nil {
						t.Fatal(err)
					}
				}
				n := 1
				for ; f.freeze(url, mode, n); n++ {
				}
				if made := query[int](f, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'entitlement.entitlement_audit'::regclass`); n < 10 || made < 3 {
					t.Errorf("cleanup sent %d messages and made %d partitions, so this test shows nothing", n, made)
				}
			})
		}
	}
}

// freeze freezes a cleanup before its nth message, grants, and reports whether the cleanup
// had so many.
func (f *fixture) freeze(url string, mode pgx.QueryExecMode, n int) bool {
	f.t.Helper()
	f.bare()
	stop := &freezer{frozen: make(chan struct{}), released: make(chan struct{})}
	stop.left.Store(int64(n))
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		f.t.Fatal(err)
	}
	config.MaxConns = 1
	config.ConnConfig.DefaultQueryExecMode = mode
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return freezingConn{conn, stop}, err
	}
	pool, err := pgxpool.NewWithConfig(f.ctx, config)
	if err != nil {
		f.t.Fatal(err)
	}
	defer pool.Close()
	defer close(stop.released)
	done := make(chan error, 1)
	go func() {
		_, err := entitlement.NewStore(pool, time.Hour).EnsureAudit(f.ctx, keep)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			f.t.Fatal(err)
		}
		return false
	case <-stop.frozen:
	}
	ctx, cancel := context.WithTimeout(f.ctx, 2*time.Second)
	defer cancel()
	if _, err := f.store.Grant(ctx, item, write(fmt.Sprint("frozen at ", n))); err != nil {
		f.t.Errorf("frozen before message %d: a grant fails: %v", n, err)
	}
	return true
}
