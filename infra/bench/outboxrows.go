package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// States of rows that are inserted into an outbox in bulk, as values of status,
// attempt_count, next_retry_at and finished_at. Each row has times of its own, like rows
// that were written one by one.
const (
	due      = "'PENDING', 0, clock_timestamp(), NULL::timestamptz"
	finished = "'PUBLISHED', 1, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 hour'"
	backoff  = "'PENDING', 3, clock_timestamp() + interval '1 hour', NULL::timestamptz"
)

// insertSQL makes events as a grant does; the ids are UUIDv7.
const insertSQL = `
INSERT INTO {table} (event_id, aggregate_key, event_type, payload, occurred_at, traceparent, status, attempt_count, next_retry_at, finished_at)
SELECT id, n || '/item1', 'EntitlementGranted',
       jsonb_build_object('event_id', id, 'event_type', 'EntitlementGranted',
           'occurred_at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
           'user_id', n::text, 'stock_keeping_unit', 'item1', 'source', 'purchase', 'source_id', 'p_' || n, 'version', 1),
       now(), '` + traceparent + `', {state}
FROM generate_series(1, $1) n,
     LATERAL (SELECT md5(n::text || random()::text) AS noise) r,
     LATERAL (SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
         || '7' || substr(noise, 1, 3) || '8' || substr(noise, 4, 15))::uuid AS id) i`

func insertRows(ctx context.Context, pool *pgxpool.Pool, table, state string, n int) error {
	_, err := pool.Exec(ctx, strings.NewReplacer("{table}", table, "{state}", state).Replace(insertSQL), n)
	return err
}

// refill leaves an outbox with nothing but n rows that are due, vacuumed as by
// autovacuum, and no checkpoint due soon.
func refill(ctx context.Context, pool *pgxpool.Pool, table string, n int) error {
	if _, err := pool.Exec(ctx, "TRUNCATE "+table); err != nil {
		return err
	}
	if err := insertRows(ctx, pool, table, due, n); err != nil {
		return err
	}
	return settle(ctx, pool, table)
}

func settle(ctx context.Context, pool *pgxpool.Pool, table string) error {
	for _, sql := range []string{"VACUUM (ANALYZE) " + table, "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// insertOne commits one event that is due and returns its id.
func insertOne(ctx context.Context, pool *pgxpool.Pool, table string) (id string, err error) {
	err = pool.QueryRow(ctx, strings.NewReplacer("{table}", table, "{state}", due).Replace(insertSQL)+" RETURNING event_id::text", 1).Scan(&id)
	return id, err
}
