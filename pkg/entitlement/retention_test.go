package entitlement_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
)

var keep = entitlement.Retention{Published: 7 * 24 * time.Hour, AuditMonths: 13}

// Cleanup goes in short steps; FAILED events and what is young stay.
func TestCleanup(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, status, finished_at, attempt_count)
		SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'k', 'EntitlementGranted', '{}', now(), s,
			CASE WHEN s <> 'PENDING' THEN now() - interval '7 days 1 minute' END, 1
		FROM generate_series(1, 2600) n, LATERAL (SELECT CASE n % 13 WHEN 0 THEN 'FAILED' WHEN 1 THEN 'PENDING' ELSE 'PUBLISHED' END AS s) x`)
	f.exec(`INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, status, finished_at)
		VALUES ('01900000-0000-7000-8001-000000000000', 'k', 'EntitlementGranted', '{}', now(), 'PUBLISHED', now() - interval '6 days 23 hours')`)
	f.exec(`INSERT INTO entitlement.idempotency_keys (caller, operation, idem_key, request_hash, status_code, response_body, etag, expires_at)
		SELECT 'c', 'grant', n::text, sha256('x'), 200, '{}', '1', now() - interval '1 second' FROM generate_series(1, 2300) n`)
	f.grant("fresh")
	counts := func() (n [2]int) {
		return [2]int{query[int](f, `SELECT count(*) FROM entitlement.outbox_events`), query[int](f, `SELECT count(*) FROM entitlement.idempotency_keys`)}
	}
	total := 0
	for step := 1; ; step++ {
		before := counts()
		report, err := f.store.Cleanup(f.ctx, keep)
		if err != nil {
			t.Fatal(err)
		}
		after := counts()
		for i := range before {
			if gone := before[i] - after[i]; gone > 1000 {
				t.Fatalf("one DELETE took %d rows", gone)
			}
		}
		total += report.Deleted
		if !report.More {
			break
		}
		if step > 10 {
			t.Fatal("it does not end")
		}
	}
	if total != 2200+2300 {
		t.Errorf("%d deleted", total)
	}
	for status, want := range map[string]int{"FAILED": 200, "PENDING": 201, "PUBLISHED": 1} {
		if n := query[int](f, `SELECT count(*) FROM entitlement.outbox_events WHERE status = $1`, status); n != want {
			t.Errorf("%d %s kept, want %d", n, status, want)
		}
	}
	if key := query[string](f, `SELECT string_agg(idem_key, ',') FROM entitlement.idempotency_keys`); key != "fresh" {
		t.Errorf("keys kept: %s", key)
	}
}

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

// audit writes an audit row of a time.
func (f *fixture) audit(at time.Time) {
	f.t.Helper()
	f.exec(`INSERT INTO entitlement.entitlement_audit VALUES (gen_random_uuid(), $1, 'u', 'i', 'grant', 'ACTIVE', 1, 'r', 'p', 'c', 'k', gen_random_uuid())`, at)
}

// month is the first of a month, counted from this one, by the database's clock.
func (f *fixture) month(n int) time.Time {
	f.t.Helper()
	return query[time.Time](f, `SELECT date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + make_interval(months => $1)`, n).UTC()
}

func (f *fixture) ensure(made, dropped int) {
	f.t.Helper()
	counts, err := f.store.EnsureAudit(f.ctx, keep)
	if err != nil || counts.PartitionsMade != made || counts.PartitionsDropped != dropped {
		f.t.Fatalf("%+v, %v; want %d made, %d dropped", counts, err, made, dropped)
	}
}

// The first run makes this month's partition and three more, and takes along
// what went to DEFAULT meanwhile; the second makes none.
func TestPartitionsAreMadeAhead(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.grant("in DEFAULT")
	f.audit(f.month(1))
	f.audit(f.month(2).Add(-time.Microsecond))
	f.ensure(4, 0)
	f.ensure(0, 0)
	want := []string{"entitlement_audit_default"}
	for n := range 4 {
		want = append(want, "entitlement_audit_y"+f.month(n).Format("2006m01"))
	}
	slices.Sort(want)
	if got := f.partitions(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.grant("in its month")
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit_default`); n != 0 {
		t.Errorf("%d rows in DEFAULT", n)
	}
	for n, want := range []int{2, 2} {
		if got := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit_y`+f.month(n).Format("2006m01")); got != want {
			t.Errorf("month %d has %d rows, want %d", n, got, want)
		}
	}
	if history, _, err := f.store.History(f.ctx, "u_1", "item1", "", 10); err != nil || len(history) != 2 {
		t.Errorf("%v, %v", history, err)
	}
}

// Months that are too old go, whole; the month of the limit stays.
func TestOldPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ensure(4, 0)
	for _, n := range []int{-15, -14, -13, -12} {
		f.exec(fmt.Sprintf(`CREATE TABLE entitlement.entitlement_audit_y%s PARTITION OF entitlement.entitlement_audit FOR VALUES FROM ('%s') TO ('%s')`,
			f.month(n).Format("2006m01"), f.month(n).Format(time.RFC3339), f.month(n+1).Format(time.RFC3339)))
		f.audit(f.month(n))
	}
	f.ensure(0, 2)
	f.ensure(0, 0)
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit`); n != 2 {
		t.Errorf("%d rows kept", n)
	}
}

// Rows in the DEFAULT partition grow old too: cleanup did not run in their month.
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

// Several cleanups at once, while grants go on: nobody fails, nothing is lost.
func TestCleanupsAndGrantsAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
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
	if n := len(f.partitions()); n != 5 {
		t.Errorf("%v", f.partitions())
	}
	if n := query[int](f, `SELECT count(DISTINCT version) FROM entitlement.entitlement_audit`); n != 80 {
		t.Errorf("%d versions audited of 80 grants", n)
	}
	if n := query[int](f, `SELECT count(*) FROM entitlement.idempotency_keys`); n != 80 {
		t.Errorf("%d keys", n)
	}
}

// A long transaction holds the audit table: cleanup gives up in bounded time, so
// that grants do not queue up behind it.
func TestPartitionsWaitBriefly(t *testing.T) {
	t.Parallel()
	f := setup(t)
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
		t.Error("it did not wait")
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it waited %s", took)
	}
	f.grant("goes on")
}

// No partition at all but DEFAULT: grants go on for ever.
func TestGrantsWithoutPartitions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if got := f.partitions(); !slices.Equal(got, []string{"entitlement_audit_default"}) {
		t.Fatalf("%v", got)
	}
	f.grant("k")
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit_default`); n != 1 {
		t.Errorf("%d rows", n)
	}
}
