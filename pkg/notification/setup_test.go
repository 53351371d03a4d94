package notification_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDatabase) != "" {
		runChild()
	}
	os.Exit(kit.Main(m))
}

// fixture is a store on a database of the test's own.
type fixture struct {
	t        testing.TB
	ctx      context.Context
	database string
	pool     *pgxpool.Pool
	store    *notification.Store
	policy   lease.Policy
}

func setup(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: t.Context(), database: kit.Database(t), policy: lease.DefaultPolicy}
	f.pool = kit.Connect(t, f.database)
	f.store = notification.NewStore(f.pool)
	return f
}

// record returns an event that is to notify user.
func record(user string) event.Record {
	id := uuid.Must(uuid.NewV7()).String()
	payload, err := json.Marshal(map[string]any{"event_id": id, "user_id": user, "version": 1})
	if err != nil {
		panic(err)
	}
	return event.Record{ID: id, Type: "EntitlementGranted", Key: user + "/item1", OccurredAt: time.Now(), Payload: payload}
}

func records(n int) []event.Record {
	list := make([]event.Record, n)
	for i := range list {
		list[i] = record("u_1")
	}
	return list
}

// pending makes n PENDING notifications and returns their event ids.
func (f *fixture) pending(n int) []string {
	f.t.Helper()
	list := records(n)
	if created, err := f.store.Accept(f.ctx, list); err != nil || created != n {
		f.t.Fatalf("created %d of %d: %v", created, n, err)
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = list[i].ID
	}
	return ids
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.ctx, sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) count(sql string, args ...any) (n int) {
	f.t.Helper()
	if err := f.pool.QueryRow(f.ctx, `SELECT count(*) FROM `+sql, args...).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// due ends every lease and backoff.
func (f *fixture) due() {
	f.t.Helper()
	f.exec(`UPDATE notification.notifications SET next_retry_at = now(),
		lease_until = CASE WHEN lease_until IS NOT NULL THEN now() END WHERE finished_at IS NULL`)
}

type row struct {
	Status   string
	Attempts int
	Error    *string
	Wait     float64 // seconds until it is due
	Letters  int
}

// row returns the notification of an event.
func (f *fixture) row(eventID string) row {
	f.t.Helper()
	rows, err := f.pool.Query(f.ctx, `SELECT status, attempt_count, last_error,
			extract(epoch FROM next_retry_at - now())::float8,
			(SELECT count(*) FROM notification.notification_dlq d WHERE d.notification_id = n.notification_id)
		FROM notification.notifications n WHERE event_id = $1`, eventID)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// channel is a channel that calls the test's function.
type channel func(context.Context, notification.Outgoing) error

func (c channel) Send(ctx context.Context, o notification.Outgoing) error { return c(ctx, o) }

func (f *fixture) deliverer(c notification.Channel) *notification.Deliverer {
	return notification.NewDeliverer(f.pool, f.policy, "test", c, slog.New(slog.DiscardHandler))
}

func (f *fixture) step(c notification.Channel) lease.Report {
	f.t.Helper()
	report, err := f.deliverer(c).Step(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return report
}

// sent counts the ids that a channel was given.
type sent struct {
	mutex sync.Mutex
	ids   map[string]int
}

func (s *sent) add(id string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ids == nil {
		s.ids = map[string]int{}
	}
	s.ids[id]++
}

func (s *sent) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.ids)
}

// nothing is a channel's function that accepts every notification.
func nothing(context.Context, notification.Outgoing) error { return nil }
