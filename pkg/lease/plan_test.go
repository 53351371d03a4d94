package lease_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oneConnection returns a pool of one connection. It makes statistics exact: they are one
// backend's, which flushes them itself.
func oneConnection(t *testing.T) *pgxpool.Pool {
	return connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
}

// hotRatio claims 3,000 rows and returns the share of the updates that were HOT.
func hotRatio(f *fixture) float64 {
	f.t.Helper()
	f.insert(3000)
	f.exec(`VACUUM ANALYZE ` + f.table.Name)
	w := f.worker("w")
	for range 3000 / f.policy.Batch {
		f.claim(w, f.policy.Batch)
	}
	f.exec(`SELECT pg_stat_force_next_flush()`)
	if updated := query[int](f, `SELECT pg_stat_get_tuples_updated($1::regclass)`, f.table.Name); updated != 3000 {
		f.t.Fatalf("%d updates counted, want 3000", updated)
	}
	return query[float64](f, `SELECT pg_stat_get_tuples_hot_updated($1::regclass)::float8 / 3000`, f.table.Name)
}

// A claim changes no indexed column and finds room on its page.
func TestClaimsAreHOT(t *testing.T) {
	t.Parallel()
	if ratio := hotRatio(setupOn(t, oneConnection(t))); ratio < 0.9 {
		t.Errorf("%.0f %% of claims are HOT, want 90", 100*ratio)
	}
}

// Without the fillfactor, and with an index on status, claims are not HOT.
func TestClaimsAreHOTNaive(t *testing.T) {
	t.Parallel()
	f := setupOn(t, oneConnection(t))
	f.exec(`CREATE TABLE naive (LIKE ` + tableName + ` INCLUDING ALL)`)
	f.exec(`ALTER TABLE naive RESET (fillfactor)`)
	f.exec(`CREATE INDEX ON naive (status, next_retry_at)`)
	f.table.Name = "naive"
	if ratio := hotRatio(f); ratio >= 0.9 {
		t.Errorf("%.0f %% are HOT with an index on status, so this test shows nothing", 100*ratio)
	}
}

// A claim does not read finished rows or rows in backoff: it uses the partial index.
func TestClaimUsesThePartialIndex(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`INSERT INTO ` + tableName + ` (event_id, aggregate_key, event_type, payload, occurred_at, status, finished_at, next_retry_at)
		SELECT gen_random_uuid(), 'u/i', 'EntitlementGranted', '{}', now(),
			CASE WHEN n % 2 = 0 THEN 'PUBLISHED' ELSE 'PENDING' END,
			CASE WHEN n % 2 = 0 THEN now() END,
			CASE WHEN n % 2 = 0 THEN now() ELSE now() + interval '1 h' END
		FROM generate_series(1, 20000) n`)
	f.insert(300)
	f.exec(`ANALYZE ` + tableName)
	w := f.worker("w")
	// EXPLAIN ANALYZE really claims; the transaction is rolled back.
	tx, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(f.ctx)
	rows, err := tx.Query(f.ctx, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+w.ClaimSQL(),
		f.policy.Batch, uuid.New(), "w", f.policy.Lease, f.policy.MaxAttempts)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if !strings.Contains(plan, "outbox_events_due") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("the claim does not use the partial index:\n%s", plan)
	}
	if strings.Contains(plan, "Rows Removed by Filter") {
		t.Errorf("the claim reads rows that are not due:\n%s", plan)
	}
}
