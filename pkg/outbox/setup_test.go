package outbox_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		runChild()
	}
	os.Exit(kit.Main(m))
}

const (
	table  = entitlement.OutboxTable
	stream = "ENTITLEMENT_EVENTS"
)

var limits = jetstream.Limits{MaxBytes: 64 << 20, MaxAge: 7 * 24 * time.Hour, Replicas: 1}

// fixture is an outbox on a database of the test's own.
type fixture struct {
	t        testing.TB
	ctx      context.Context
	database string
	pool     *pgxpool.Pool
}

func setup(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: t.Context(), database: kit.Database(t)}
	f.pool = kit.Connect(t, f.database)
	return f
}

// relay returns a relay that publishes through p.
func (f *fixture) relay(p outbox.Publisher) *outbox.Relay {
	return outbox.NewRelay(config(f.pool, p))
}

func config(pool *pgxpool.Pool, p outbox.Publisher) outbox.RelayConfig {
	return outbox.RelayConfig{
		Pool: pool, Table: table, Policy: lease.DefaultPolicy, Worker: "test",
		Publisher: p, Published: func() {}, Log: slog.New(slog.DiscardHandler),
	}
}

// natsRelay returns a relay that publishes to the NATS at url.
func (f *fixture) natsRelay(url string, l jetstream.Limits) *outbox.Relay {
	client := jetstream.New(url, "test", l)
	f.t.Cleanup(client.Close)
	return f.relay(jetstream.NewPublisher(client, event.EntitlementSubject))
}

// insert adds n events as grants write them.
func (f *fixture) insert(n int) []uuid.UUID {
	f.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	f.exec(`INSERT INTO `+table+` (event_id, aggregate_key, event_type, occurred_at, payload)
		SELECT id, 'u_1/item1', 'EntitlementGranted', now(), jsonb_build_object(
			'event_id', id, 'event_type', 'EntitlementGranted', 'occurred_at', '2026-01-08T07:10:00.000000Z',
			'user_id', 'u_1', 'stock_keeping_unit', 'item1', 'source', 'purchase', 'source_id', 'p_1', 'version', 1)
		FROM unnest($1::uuid[]) id`, ids)
	return ids
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.ctx, sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

// due ends every lease and backoff.
func (f *fixture) due() {
	f.t.Helper()
	f.exec(`UPDATE ` + table + ` SET next_retry_at = now(), lease_until = CASE WHEN lease_until IS NOT NULL THEN now() END WHERE finished_at IS NULL`)
}

func (f *fixture) count(where string, args ...any) (n int) {
	f.t.Helper()
	if err := f.pool.QueryRow(f.ctx, `SELECT count(*) FROM `+table+` WHERE `+where, args...).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

type row struct {
	Status   string
	Attempts int
	Error    *string
	NotDue   bool
}

func (f *fixture) row(id uuid.UUID) row {
	f.t.Helper()
	rows, err := f.pool.Query(f.ctx, `SELECT status, attempt_count, last_error, next_retry_at > now() FROM `+table+` WHERE event_id = $1`, id)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *fixture) step(r *outbox.Relay) lease.Report {
	f.t.Helper()
	report, err := r.Step(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return report
}

// publisher is a publisher that calls the test's function.
type publisher struct {
	ready   error
	publish func(context.Context, []event.Message) []error
}

func (p publisher) Ready(context.Context) error { return p.ready }
func (p publisher) Publish(ctx context.Context, m []event.Message) []error {
	return p.publish(ctx, m)
}

// takeAll answers that every message is stored.
func takeAll(_ context.Context, m []event.Message) []error { return make([]error, len(m)) }

// restart stops NATS, runs between, and starts it again at the same address.
func restart(t testing.TB, n *natsserver.Server, dir string, between func()) {
	t.Helper()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	between()
	again, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	if again.URL() != n.URL() {
		t.Fatalf("NATS came back at %s, want %s", again.URL(), n.URL())
	}
}

// startNATS starts a NATS server and returns its directory, too.
func startNATS(t testing.TB) (*natsserver.Server, string) {
	t.Helper()
	dir := t.TempDir()
	n, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop() })
	return n, dir
}

func deleteStore(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
}

// broker returns the test's own connection to JetStream.
func broker(t testing.TB, url string) natsjs.JetStream {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := natsjs.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// stored returns how often each event is in the stream.
func stored(t testing.TB, js natsjs.JetStream) map[string]int {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		found[msg.Header.Get("ce-id")]++
	}
	return found
}
