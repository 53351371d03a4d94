package entitlement

import (
	"bytes"
	"context"
	_ "embed"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// The operations, as idempotency keys and audit rows name them.
const (
	GrantOperation  = "grant"
	RevokeOperation = "revoke"
)

//go:embed change.sql
var changeSQL string

// Purchase events about one item take turns, so that each sees the refunds that
// were committed before it.
const turnSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || $2, 0))`

const forgetExpiredSQL = `
DELETE FROM entitlement.idempotency_keys
WHERE caller = $1 AND operation = $2 AND idem_key = $3 AND expires_at <= now()`

// Grant gives a user something, whether it was never owned, revoked or owned
// already. It returns the stored answer when w.Key was used for the same change
// before, and idempotency.ErrReused when it was used for another one.
func (s *Store) Grant(ctx context.Context, c Change, w Write) (idempotency.Response, error) {
	w.Key.Operation = GrantOperation
	return s.change(ctx, Active, c, w)
}

// Revoke takes something away. What was never granted is created REVOKED.
func (s *Store) Revoke(ctx context.Context, c Change, w Write) (idempotency.Response, error) {
	w.Key.Operation = RevokeOperation
	return s.change(ctx, Revoked, c, w)
}

// maxRaces bounds how often one request may meet others with its key.
const maxRaces = 3

func (s *Store) change(ctx context.Context, status Status, c Change, w Write) (idempotency.Response, error) {
	mismatched := false
	for range maxRaces {
		response, err := s.tryChange(ctx, status, c, w)
		if errors.Is(err, ErrVersion) && !mismatched {
			// The version may have moved because this very request, sent twice, was
			// done while we waited for the row: then the next try finds its answer.
			mismatched = true
			continue
		}
		if postgres.Code(err) != postgres.UniqueViolation {
			return response, postgres.Wrap(w.Key.Operation, err)
		}
		// Somebody else committed this key while we ran, and our whole statement
		// rolled back: the next try finds their answer. Or the key is a leftover
		// that expired, and goes now.
		if _, err := s.pool.Exec(ctx, forgetExpiredSQL, w.Key.Caller, w.Key.Operation, w.Key.Value); err != nil {
			return idempotency.Response{}, postgres.Wrap(w.Key.Operation, err)
		}
	}
	return idempotency.Response{}, idempotency.ErrInProgress
}

func (s *Store) tryChange(ctx context.Context, status Status, c Change, w Write) (idempotency.Response, error) {
	args := []any{
		c.UserID, c.StockKeepingUnit, status, w.IfMatch,
		w.Key.Caller, w.Key.Operation, w.Key.Value, w.Key.Hash, s.retention,
		id.New(), id.New(), c.Reason, c.PurchaseID, w.Traceparent, w.Purchase,
	}
	var response idempotency.Response
	var hash []byte
	err := postgres.Retry(ctx, func(ctx context.Context) error {
		return s.queryRow(ctx, w.Purchase, c, args).Scan(&response.Status, &response.Body, &response.ETag, &response.Replayed, &hash)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return idempotency.Response{}, ErrVersion
	case err != nil:
		return idempotency.Response{}, err
	case !bytes.Equal(hash, w.Key.Hash):
		return idempotency.Response{}, idempotency.ErrReused
	}
	return response, nil
}

// queryRow runs the change, for purchase events behind their turn, in one round
// trip: a batch is one transaction, and each of its statements sees what was
// committed before it began.
func (s *Store) queryRow(ctx context.Context, turns bool, c Change, args []any) pgx.Row {
	if !turns {
		return s.pool.QueryRow(ctx, changeSQL, args...)
	}
	batch := &pgx.Batch{}
	batch.Queue(turnSQL, c.UserID, c.StockKeepingUnit)
	batch.Queue(changeSQL, args...)
	return &secondRow{results: s.pool.SendBatch(ctx, batch)}
}

// secondRow scans the row of a batch's second statement and ends the batch.
type secondRow struct{ results pgx.BatchResults }

func (r *secondRow) Scan(targets ...any) error {
	_, turnErr := r.results.Exec()
	scanErr := r.results.QueryRow().Scan(targets...)
	// Close tells how the commit went.
	return errors.Join(turnErr, scanErr, r.results.Close())
}
