package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

const (
	claimBatch = 50
	dueRows    = 1_000 // put in before every round, and all claimed in it
)

// outboxCopy is a table like the outbox, with other rows beside those that are due.
type outboxCopy struct {
	name, state string
	queue       *lease.Queue[payload]
	pool, bulk  *pgxpool.Pool
	took        []time.Duration
	updated     int
	hot         int
}

// payload is what a claim reads.
type payload struct {
	kind, key, trace string
	at               time.Time
	data             []byte
}

// claim measures how long a claim takes beside many rows that it must not read: finished
// ones, and ones that are backed off.
func (b *bench) claim(ctx context.Context) error {
	database, err := b.database(ctx, "claim")
	if err != nil {
		return err
	}
	// One connection: only a session itself can flush its statistics.
	pool, bulk, err := b.pools(ctx, database, 1)
	if err != nil {
		return err
	}
	tables := []*outboxCopy{{name: "empty"}, {name: "finished", state: finished}, {name: "backoff", state: backoff}}
	for _, t := range tables {
		t.pool, t.bulk = pool, bulk
		if err := t.make(ctx, b.sizes.loaded); err != nil {
			return err
		}
		b.progress("  table %s is there", t.name)
	}
	for range b.sizes.claims {
		for _, t := range tables {
			if err := t.round(ctx); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	p50 := func(t *outboxCopy) time.Duration { return percentile(t.took, 0.5) }
	base := tables[0]
	text := func(t *outboxCopy) string {
		return fmt.Sprintf("%s, p99 %s", ms(p50(t)), ms(percentile(t.took, 0.99)))
	}
	for i, what := range []string{"finished", "backed-off"} {
		t := tables[i+1]
		ratio := float64(p50(t)) / float64(p50(base))
		b.row(fmt.Sprintf("claim of %d rows beside %d %s rows", claimBatch, b.sizes.loaded, what), text(t), "none: "+text(base), judged(ratio, ratio <= 1.3), "≤ 1.30")
	}
	hot, updated := 0, 0
	for _, t := range tables {
		hot, updated = hot+t.hot, updated+t.updated
	}
	ratio := float64(hot) / float64(updated)
	b.row("HOT updates of these claims", fmt.Sprint(hot), fmt.Sprintf("all updates: %d", updated), judged(ratio, ratio >= 0.9), "≥ 0.90")
	return nil
}

// make creates a table like the outbox, with indexes and settings, and its other rows.
func (t *outboxCopy) make(ctx context.Context, loaded int) error {
	var options string
	if err := t.bulk.QueryRow(ctx, `SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = 'entitlement.outbox_events'::regclass`).Scan(&options); err != nil {
		return err
	}
	if _, err := t.bulk.Exec(ctx, "CREATE TABLE "+t.name+" (LIKE entitlement.outbox_events INCLUDING ALL) WITH ("+options+")"); err != nil {
		return err
	}
	if t.state != "" {
		if err := insertRows(ctx, t.bulk, t.name, t.state, loaded); err != nil {
			return err
		}
	}
	t.queue = lease.New(t.pool, lease.Table{
		Name: t.name, ID: "event_id", Columns: "event_type, aggregate_key, occurred_at, traceparent, payload",
		InFlight: outbox.InFlight, Done: outbox.Published,
	}, policy(claimBatch), "bench", func(p *payload) []any { return []any{&p.kind, &p.key, &p.at, &p.trace, &p.data} })
	if err := insertRows(ctx, t.bulk, t.name, due, dueRows); err != nil {
		return err
	}
	if err := settle(ctx, t.bulk, t.name); err != nil {
		return err
	}
	err := t.round(ctx) // to warm up: caches, and the plan of the prepared statement
	t.took, t.updated, t.hot = nil, 0, 0
	return err
}

// round inserts rows that are due, claims all of them, and finishes them.
func (t *outboxCopy) round(ctx context.Context) error {
	if err := insertRows(ctx, t.bulk, t.name, due, dueRows); err != nil {
		return err
	}
	updated, hot, err := t.statistics(ctx)
	if err != nil {
		return err
	}
	var claims []*lease.Claim[payload]
	for {
		began := time.Now()
		claim, err := t.queue.Claim(ctx)
		took := time.Since(began)
		if err != nil {
			return err
		}
		if len(claim.Rows) == 0 {
			break
		}
		t.took = append(t.took, took)
		claims = append(claims, claim)
	}
	updatedAfter, hotAfter, err := t.statistics(ctx)
	if err != nil {
		return err
	}
	t.updated, t.hot = t.updated+updatedAfter-updated, t.hot+hotAfter-hot
	for _, claim := range claims {
		ids := make([]uuid.UUID, 0, claimBatch)
		for _, row := range claim.Rows {
			ids = append(ids, row.ID)
		}
		if lost, err := claim.Finish(ctx, ids); err != nil || lost > 0 {
			return fmt.Errorf("lost %d leases, %w", lost, err)
		}
	}
	return nil
}

func (t *outboxCopy) statistics(ctx context.Context) (updated, hot int, err error) {
	if _, err := t.pool.Exec(ctx, `SELECT pg_stat_force_next_flush()`); err != nil {
		return 0, 0, err
	}
	err = t.pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = $1::regclass`, t.name).Scan(&updated, &hot)
	return updated, hot, err
}
