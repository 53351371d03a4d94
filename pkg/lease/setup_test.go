package lease_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const tableName = "entitlement.outbox_events"

var outboxTable = lease.Table{Name: tableName, ID: "event_id", Columns: "aggregate_key", InFlight: "IN_FLIGHT", Done: "PUBLISHED"}

var errTest = errors.New("the test says no")

// fixture is a table of work on a database of the test's own.
type fixture struct {
	t      testing.TB
	ctx    context.Context
	pool   *pgxpool.Pool
	table  lease.Table
	policy lease.Policy
}

// setup returns an empty table; change alters the default policy.
func setup(t testing.TB, change ...func(*lease.Policy)) *fixture {
	t.Helper()
	return setupOn(t, kit.Pool(t), change...)
}

func setupOn(t testing.TB, pool *pgxpool.Pool, change ...func(*lease.Policy)) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: t.Context(), pool: pool, table: outboxTable, policy: lease.DefaultPolicy}
	for _, c := range change {
		c(&f.policy)
	}
	return f
}

func attempts(n int) func(*lease.Policy) { return func(p *lease.Policy) { p.MaxAttempts = n } }
func batch(n int) func(*lease.Policy)    { return func(p *lease.Policy) { p.Batch = n } }

// worker returns a new queue, as another process would have.
func (f *fixture) worker(name string) *lease.Queue[string] {
	return lease.New(f.pool, f.table, f.policy, name, func(s *string) []any { return []any{s} })
}

// insert adds n rows that are due.
func (f *fixture) insert(n int) []uuid.UUID {
	f.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	f.exec(`INSERT INTO `+f.table.Name+` (event_id, aggregate_key, event_type, payload, occurred_at)
		SELECT id, 'u/' || id, 'EntitlementGranted', jsonb_build_object('event_id', id), now() FROM unnest($1::uuid[]) id`, ids)
	return ids
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.ctx, sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

// expire ends the leases of the given rows, or of all, by the database's clock.
func (f *fixture) expire(ids ...uuid.UUID) {
	f.t.Helper()
	f.exec(`UPDATE `+f.table.Name+` SET lease_until = now() - interval '1 s'
		WHERE lease_until IS NOT NULL AND ($1::uuid[] IS NULL OR event_id = ANY($1))`, ids)
}

// due ends every backoff.
func (f *fixture) due() {
	f.t.Helper()
	f.exec(`UPDATE ` + f.table.Name + ` SET next_retry_at = now() WHERE finished_at IS NULL`)
}

// claim claims, and ends the test unless want rows came.
func (f *fixture) claim(q *lease.Queue[string], want int) *lease.Claim[string] {
	f.t.Helper()
	claim, err := q.Claim(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	if len(claim.Rows) != want {
		f.t.Fatalf("claimed %d rows, want %d", len(claim.Rows), want)
	}
	return claim
}

// row holds the columns that tests look at.
type row struct {
	Status    string
	Attempts  int
	Held      bool
	Finished  bool
	LastError *string
	LockedBy  *string
	NextRetry time.Time
}

func (f *fixture) row(id uuid.UUID) row {
	f.t.Helper()
	rows, err := f.pool.Query(f.ctx, `SELECT status, attempt_count, claim_token IS NOT NULL, finished_at IS NOT NULL,
		last_error, locked_by, next_retry_at FROM `+f.table.Name+` WHERE event_id = $1`, id)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// whole returns everything that a row holds, as text.
func (f *fixture) whole(id uuid.UUID) string {
	f.t.Helper()
	return query[string](f, `SELECT to_jsonb(t)::text FROM `+f.table.Name+` t WHERE event_id = $1`, id)
}

func (f *fixture) count(status string) int {
	f.t.Helper()
	return query[int](f, `SELECT count(*) FROM `+f.table.Name+` WHERE status = $1`, status)
}

func query[T any](f *fixture, sql string, args ...any) T {
	f.t.Helper()
	var v T
	if err := f.pool.QueryRow(f.ctx, sql, args...).Scan(&v); err != nil {
		f.t.Fatal(err)
	}
	return v
}

func idsOf(claim *lease.Claim[string]) []uuid.UUID {
	var ids []uuid.UUID
	for _, r := range claim.Rows {
		ids = append(ids, r.ID)
	}
	return ids
}

func failures(ids []uuid.UUID) []lease.Failure {
	var fs []lease.Failure
	for _, id := range ids {
		fs = append(fs, lease.Failure{ID: id, Reason: errTest})
	}
	return fs
}

// tracer remembers the statements of a pool.
type tracer struct {
	mutex sync.Mutex
	calls []pgx.TraceQueryStartData
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.mutex.Lock()
	defer tr.mutex.Unlock()
	tr.calls = append(tr.calls, data)
	return ctx
}

func (tr *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns the statements since the last take.
func (tr *tracer) take() []pgx.TraceQueryStartData {
	tr.mutex.Lock()
	defer tr.mutex.Unlock()
	calls := tr.calls
	tr.calls = nil
	return calls
}

// connect returns a pool on a database of the test's own, configured by change.
func connect(t testing.TB, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(kit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
