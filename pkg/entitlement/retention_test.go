package entitlement_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

const day = 24 * time.Hour

var keep = entitlement.Retention{Outbox: outbox.Retention{Published: 7 * day, Unreconciled: 29 * day}, AuditMonths: 13}

// Cleanup runs in short steps; FAILED events and young rows stay.
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
	f.reconciled("01900000-0000-7000-8001-000000000000")
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
				t.Fatalf("one DELETE took %d rows, want 1000 at most", gone)
			}
		}
		total += report.Deleted
		if !report.More {
			break
		}
		if step > 10 {
			t.Fatal("Cleanup does not end")
		}
	}
	if total != 2200+2300 {
		t.Errorf("%d rows were deleted, want %d", total, 2200+2300)
	}
	for status, want := range map[string]int{"FAILED": 200, "PENDING": 201, "PUBLISHED": 1} {
		if n := query[int](f, `SELECT count(*) FROM entitlement.outbox_events WHERE status = $1`, status); n != want {
			t.Errorf("%d %s kept, want %d", n, status, want)
		}
	}
	if key := query[string](f, `SELECT string_agg(idem_key, ',') FROM entitlement.idempotency_keys`); key != "fresh" {
		t.Errorf("keys kept: %s, want fresh", key)
	}
}

// reconciled moves the watermark of a consumer.
func (f *fixture) reconciled(upTo string) {
	f.t.Helper()
	f.exec(`INSERT INTO entitlement.outbox_reconciled (consumer, up_to) VALUES ('notify', $1) ON CONFLICT (consumer) DO UPDATE SET up_to = excluded.up_to`, upTo)
}

// finished inserts outbox rows numbered from…to that ended age ago.
func (f *fixture) finished(from, to int, status string, age time.Duration) {
	f.t.Helper()
	f.exec(`INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, status, finished_at)
		SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'k', 'EntitlementGranted', '{}', now(), $3, now() - $4::interval
		FROM generate_series($1::int, $2) n`, from, to, status, age)
}

// clean runs a cleanup to its end and returns how many outbox rows it left.
func (f *fixture) clean(r entitlement.Retention) int {
	f.t.Helper()
	for range 20 {
		counts, err := f.store.Cleanup(f.ctx, r)
		if err != nil {
			f.t.Fatal(err)
		}
		if !counts.More {
			return query[int](f, `SELECT count(*) FROM entitlement.outbox_events`)
		}
	}
	f.t.Fatal("cleanup does not end")
	return 0
}

// Published rows that are not reconciled are kept and counted, as the broker may have lost
// them. They are kept until consumers begin to forget their events.
func TestCleanupWaitsForReconcile(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.finished(1, 10, "PUBLISHED", 8*day)
	waiting := func(want int) {
		t.Helper()
		if n, err := f.store.Unreconciled(f.ctx, keep); err != nil || n != want {
			t.Errorf("%d rows wait for reconcile, %v; want %d", n, err, want)
		}
	}
	if left := f.clean(keep); left != 10 {
		t.Errorf("%d of 10 rows are left before the first reconcile, want all", left)
	}
	waiting(10)
	f.reconciled("01900000-0000-7000-8000-000000000004")
	if left := f.clean(keep); left != 6 {
		t.Errorf("%d rows are left behind a watermark at the fourth of ten, want 6", left)
	}
	waiting(6)
	// The slowest of several consumers counts.
	f.exec(`INSERT INTO entitlement.outbox_reconciled (consumer, up_to) VALUES ('another', '01900000-0000-7000-8000-00000000ffff')`)
	if left := f.clean(keep); left != 6 {
		t.Errorf("%d rows are left, want 6: another consumer's watermark is not enough", left)
	}
	f.reconciled("01900000-0000-7000-8000-00000000000a")
	if left := f.clean(keep); left != 0 {
		t.Errorf("%d reconciled rows are left, want none", left)
	}
	waiting(0)
	f.finished(11, 20, "PUBLISHED", 28*day)
	f.finished(21, 30, "PUBLISHED", 30*day)
	if left := f.clean(keep); left != 10 {
		t.Errorf("%d rows are left, want the 10 that are younger than 29 days", left)
	}
}

// FAILED rows stay for ever, or for their own retention if it is set.
func TestCleanupOfFailed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.finished(1, 10, "FAILED", 100*day)
	f.finished(11, 20, "FAILED", 9*day)
	if left := f.clean(keep); left != 20 {
		t.Errorf("%d of 20 FAILED rows are left, want all", left)
	}
	limited := keep
	limited.Outbox.Failed = 90 * day
	if left := f.clean(limited); left != 10 {
		t.Errorf("%d FAILED rows are left, want the 10 that are younger than 90 days", left)
	}
}

// A key and its answer are kept until they expire.
func TestKeysAreKeptUntilTheyExpire(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.grant("young")
	f.grant("old")
	f.exec(`UPDATE entitlement.idempotency_keys SET expires_at = now() + interval '1 minute' WHERE idem_key = 'young'`)
	f.exec(`UPDATE entitlement.idempotency_keys SET expires_at = now() - interval '1 second' WHERE idem_key = 'old'`)
	f.clean(keep)
	if kept := query[string](f, `SELECT string_agg(idem_key, ',') FROM entitlement.idempotency_keys`); kept != "young" {
		t.Errorf("keys kept: %s, want young", kept)
	}
}

// Cleanup reads the rows that it deletes, and hardly any that stay.
func TestCleanupReadsWhatItDeletes(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	config := pool.Config()
	config.MaxConns = 1 // makes statistics exact: they are one backend's, flushed by it
	one, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	f := setupOn(t, one)
	f.finished(1, 20_000, "FAILED", 100*day)
	f.finished(20_001, 40_000, "PUBLISHED", 2*day)
	f.finished(40_001, 40_100, "PUBLISHED", 8*day)
	f.reconciled("01900000-0000-7000-8001-000000000000")
	f.exec(`VACUUM ANALYZE entitlement.outbox_events`)
	read := func() int {
		f.exec(`SELECT pg_stat_force_next_flush()`)
		return query[int](f, `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'entitlement.outbox_events'::regclass`)
	}
	before := read()
	counts, err := f.store.Cleanup(f.ctx, keep)
	if err != nil || counts.Deleted != 100 {
		t.Errorf("%+v, %v; want 100 deleted", counts, err)
	}
	if n := read() - before; n > 500 {
		t.Errorf("Cleanup read %d rows to delete 100, want 500 at most", n)
	}
}
