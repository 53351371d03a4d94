package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

const (
	retention   = 24 * time.Hour
	caller      = "5e2f1ce0-0000-4000-8000-000000000101"
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// naive measures grants by the store, without HTTP, beside the same writes in a statement
// each and in a transaction of seven round trips each; and a grant that comes alone beside
// its statement alone.
func (b *bench) naive(ctx context.Context) error {
	database, err := b.database(ctx, "naive")
	if err != nil {
		return err
	}
	pool, err := postgres.Open(database, poolSize, "cache_statement", nil)
	if err != nil {
		return err
	}
	b.onTidy(func() error { pool.Close(); return nil })
	const workers = 64
	store := entitlement.NewStore(pool, retention)
	ours := b.direct(store, workers)
	peer, limitName, err := b.fourWrites(ctx)
	if err != nil {
		return err
	}
	naive := func(ctx context.Context) (float64, error) {
		return load(ctx, workers, b.sizes.window, func(ctx context.Context) (func() error, func(), error) {
			return func() error { return sevenRoundTrips(ctx, pool, randomUser(), randomKey()) }, func() {}, nil
		})
	}
	statement, err := os.ReadFile(grantPath)
	if err != nil {
		return err
	}
	single := func(ctx context.Context) (float64, error) {
		return load(ctx, 1, b.sizes.window, func(ctx context.Context) (func() error, func(), error) {
			return func() error {
				_, err := pool.Exec(ctx, string(statement), randomUser(), "item1", "ACTIVE", 0, caller, "grant", randomKey(), bytes.Repeat([]byte{0xab}, 32), retention,
					id.New(), "purchase", "p_1", traceparent, false)
				return err
			}, func() {}, nil
		})
	}
	lone := []arm{{"one at a time", b.direct(store, 1)}, {"its statement", single}}
	many := []arm{{limitName, peer}, {"group commit", ours}, {"seven round trips", naive}}
	for _, a := range append(many, lone...) { // to warm up
		if _, err := a.run(ctx); err != nil {
			return err
		}
	}
	l, err := b.rounds(ctx, lone...) // by themselves: what many leave to the database slows one
	if err != nil {
		return err
	}
	m, err := b.rounds(ctx, many...)
	if err != nil {
		return err
	}
	const work = "grant without HTTP, 64 workers"
	b.atLeast(work, m[1], limitName, m[0], 3)
	b.atLeast(work, m[1], "transaction of seven round trips", m[2], 1.9)
	b.atLeast("grant without HTTP, one at a time", l[0], "its statement alone", l[1], 0.95)
	return nil
}

// direct is an arm that grants by the store.
func (b *bench) direct(store *entitlement.Store, workers int) func(context.Context) (float64, error) {
	hash := bytes.Repeat([]byte{0xab}, 32)
	return func(ctx context.Context) (float64, error) {
		return load(ctx, workers, b.sizes.window, func(ctx context.Context) (func() error, func(), error) {
			return func() error {
				key := randomKey()
				_, err := store.Grant(ctx,
					entitlement.Change{UserID: randomUser(), StockKeepingUnit: "item1", Reason: "purchase", PurchaseID: key},
					entitlement.Write{Key: idempotency.Key{Caller: caller, Value: key, Hash: hash}, Traceparent: traceparent})
				return err
			}, func() {}, nil
		})
	}
}

// sevenRoundTrips is BEGIN, five statements and COMMIT.
func sevenRoundTrips(ctx context.Context, pool *pgxpool.Pool, user, key string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var known bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM entitlement.idempotency_keys
			WHERE caller = $1 AND operation = 'grant' AND idem_key = $2 AND expires_at > now())`, caller, key).Scan(&known); err != nil || known {
			return err
		}
		var version int64
		var at time.Time
		if err := tx.QueryRow(ctx, `INSERT INTO entitlement.entitlements AS e (user_id, stock_keeping_unit, status, version, updated_at)
			VALUES ($1, 'item1', 'ACTIVE', 1, clock_timestamp())
			ON CONFLICT (user_id, stock_keeping_unit) DO UPDATE SET status = 'ACTIVE', version = e.version + 1, updated_at = clock_timestamp()
			RETURNING version, updated_at`, user).Scan(&version, &at); err != nil {
			return err
		}
		event, text := id.New(), at.UTC().Format("2006-01-02T15:04:05.000000Z")
		payload := fmt.Sprintf(`{"event_id":%q,"event_type":"EntitlementGranted","occurred_at":%q,"user_id":%q,"stock_keeping_unit":"item1","source":"purchase","source_id":%q,"version":%d}`,
			event, text, user, key, version)
		if _, err := tx.Exec(ctx, `INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
			VALUES ($1, $2, 'EntitlementGranted', $3, $4, $5)`, event, user+"/item1", payload, at, traceparent); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO entitlement.entitlement_audit
			(audit_id, occurred_at, user_id, stock_keeping_unit, operation, status, version, reason, purchase_id, caller, idem_key, event_id)
			VALUES ($1, $2, $3, 'item1', 'grant', 'ACTIVE', $4, 'purchase', $5, $6, $5, $7)`, id.New(), at, user, version, key, caller, event); err != nil {
			return err
		}
		body := fmt.Sprintf(`{"user_id":%q,"stock_keeping_unit":"item1","status":"ACTIVE","version":%d,"updated_at":%q}`, user, version, text)
		_, err := tx.Exec(ctx, `INSERT INTO entitlement.idempotency_keys
			(caller, operation, idem_key, request_hash, status_code, response_body, etag, expires_at)
			VALUES ($1, 'grant', $2, $3, 200, $4, $5, now() + $6::interval)`,
			caller, key, bytes.Repeat([]byte{0xab}, 32), body, fmt.Sprint(version), retention)
		return err
	})
}
