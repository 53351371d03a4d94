package notification_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Since reads only the rows that it returns, though the user has 100,000 others: with the
// custom plan as with the generic one.
func TestSinceUsesItsIndex(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.sent("u_1", 100_000, 100_000*25*time.Second, 25*time.Second)
	f.sent("u_2", 5000, 24*time.Hour, time.Second)
	f.exec(`INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'u_1', 'EntitlementGranted', '{}', now() FROM generate_series(1, 5000)`)
	f.exec(`VACUUM ANALYZE notification.notifications`)
	connection, err := f.pool.Acquire(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Release()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for name, after := range map[string]string{"everything": "'-infinity'", "a minute": "now() - interval '1 minute'", "days": "now() - interval '9 days'"} {
			for _, sql := range []string{
				`SET plan_cache_mode = ` + mode,
				`PREPARE since (text, timestamptz, bigint) AS ` + notification.SinceSQL,
			} {
				if _, err := connection.Exec(f.ctx, sql); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := connection.Query(f.ctx, `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE since ('u_1', `+after+`, 100)`)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			if !strings.Contains(plan, "notifications_sent") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Rows Removed by Filter") || strings.Contains(plan, "Bitmap") {
				t.Errorf("%s, %s:\n%s", mode, name, plan)
			}
			t.Logf("%s, %s: %s", mode, name, lines[len(lines)-1])
			if _, err := connection.Exec(f.ctx, `DEALLOCATE since`); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// hotShare claims 3,000 PENDING rows and returns the share of the updates that were HOT.
// With one connection the statistics are exact: they are one backend's.
func hotShare(t *testing.T, prepare string) float64 {
	t.Helper()
	config, err := pgxpool.ParseConfig(kit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := &fixture{t: t, ctx: t.Context(), pool: pool, store: notification.NewStore(pool)}
	f.pending(3000)
	f.exec(prepare)
	f.exec(`VACUUM ANALYZE notification.notifications`)
	queue := lease.New(pool, lease.Table{Name: "notification.notifications", ID: "notification_id", InFlight: notification.Processing, Done: notification.Sent},
		lease.DefaultPolicy, "w", func(*struct{}) []any { return nil })
	for range 3000 / lease.DefaultPolicy.Batch {
		if claim, err := queue.Claim(t.Context()); err != nil || !claim.Full() {
			t.Fatal(claim, err)
		}
	}
	f.exec(`SELECT pg_stat_force_next_flush()`)
	var updated, hot int
	if err := pool.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
		WHERE schemaname = 'notification' AND relname = 'notifications'`).Scan(&updated, &hot); err != nil || updated != 3000 {
		t.Fatalf("%d updates counted, want 3000; %v", updated, err)
	}
	t.Logf("%d of %d claims are HOT", hot, updated)
	return float64(hot) / float64(updated)
}

// Claims change no index, not even that of Since.
func TestClaimsStayHOT(t *testing.T) {
	t.Parallel()
	if share := hotShare(t, `SELECT`); share < 0.9 {
		t.Errorf("%.0f %% of claims are HOT, want 90", 100*share)
	}
}

// With status in the condition of the index claims are not HOT: that is why the real index
// has another condition.
func TestClaimsStayHOTNaive(t *testing.T) {
	t.Parallel()
	if share := hotShare(t, `CREATE INDEX ON notification.notifications (user_id, sent_at) WHERE status = 'SENT'`); share >= 0.9 {
		t.Errorf("%.0f %% are HOT with status in the condition, so the other test shows nothing", 100*share)
	}
}

// The migration's index is valid; a build that was interrupted would leave an invalid one.
func TestSinceIndexIsValid(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if n := f.count(`pg_index WHERE indexrelid = 'notification.notifications_sent'::regclass AND indisvalid`); n != 1 {
		t.Error("notifications_sent is not valid")
	}
}
