package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/id"
)

var errTaken = errors.New("the key was taken")

// naiveTransfer writes what a transfer writes, with a round trip for each statement: one
// transaction takes the key, another one locks, moves and records.
func naiveTransfer(ctx context.Context, pool *pgxpool.Pool, client, key string, from, to int64) error {
	hash := bytes.Repeat([]byte{0xab}, 32)
	if tag, err := pool.Exec(ctx, `
		UPDATE integration.idempotency_key SET status = 'IN_PROGRESS', request_hash = $3, attempt = $4, started_at = now()
		WHERE client_id = $1 AND scope = 'transfer' AND idempotency_key = $2 AND status IS NULL AND expires_at > now()`,
		client, key, hash, id.New()); err != nil || tag.RowsAffected() != 1 {
		return errors.Join(err, errTaken)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if tag, err := tx.Exec(ctx, `SELECT FROM integration.idempotency_key WHERE client_id = $1 AND scope = 'transfer' AND idempotency_key = $2
			AND status = 'IN_PROGRESS' FOR UPDATE`, client, key); err != nil || tag.RowsAffected() != 1 {
			return errors.Join(err, errTaken)
		}
		for _, account := range []int64{min(from, to), max(from, to)} {
			var balance string
			if err := tx.QueryRow(ctx, `SELECT balance::text FROM core.account WHERE account_id = $1 FOR NO KEY UPDATE`, account).Scan(&balance); err != nil {
				return err
			}
		}
		transferID, event := id.New(), id.New()
		for _, statement := range []struct {
			sql  string
			args []any
		}{
			{`UPDATE core.account SET balance = balance - 0.01 WHERE account_id = $1`, []any{from}},
			{`UPDATE core.account SET balance = balance + 0.01 WHERE account_id = $1`, []any{to}},
			{`INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, created_at)
				VALUES ($1, $2, $3, 0.01, 'EUR', 'TRANSFER', now())`, []any{transferID, from, to}},
			{`INSERT INTO core.ledger_due (transfer_id) VALUES ($1)`, []any{transferID}},
			{
				`INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
				VALUES ($1, $2::text, 'TransferCompleted', jsonb_build_object('event_id', $1::uuid, 'event_type', 'TransferCompleted', 'transfer_id', $2::text,
					'amount', '0.0100', 'currency', 'EUR', 'from_account_id', $3::bigint, 'to_account_id', $4::bigint), now(), $5)`,
				[]any{event, transferID.String(), from, to, traceparent},
			},
			{`UPDATE integration.idempotency_key SET status = 'SUCCEEDED', completed_at = now(), transfer_id = $3, response_snapshot = '{"status":"SUCCEEDED"}'
				WHERE client_id = $1 AND scope = 'transfer' AND idempotency_key = $2`, []any{client, key, transferID}},
		} {
			if _, err := tx.Exec(ctx, statement.sql, statement.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
