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

// Purchase events for one item take turns, so that each sees all earlier refunds.
const turnSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || $2, 0))`

const forgetExpiredSQL = `
DELETE FROM entitlement.idempotency_keys
WHERE caller = $1 AND operation = $2 AND idem_key = $3 AND expires_at <= now()`

// Grant makes an entitlement ACTIVE, whether it was missing, REVOKED or ACTIVE. It returns
// the stored answer if w.Key was used for the same change before, and
// idempotency.ErrReused if it was used for another one.
func (s *Store) Grant(ctx context.Context, c Change, w Write) (idempotency.Response, error) {
	w.Key.Operation = GrantOperation
	return s.change(ctx, Active, c, w)
}

// Revoke makes an entitlement REVOKED; one that was never granted is created so.
func (s *Store) Revoke(ctx context.Context, c Change, w Write) (idempotency.Response, error) {
	w.Key.Operation = RevokeOperation
	return s.change(ctx, Revoked, c, w)
}

// maxRaces bounds the races of one request with others of the same key.
const maxRaces = 3

func (s *Store) change(ctx context.Context, status Status, c Change, w Write) (idempotency.Response, error) {
	mismatched := false
	for range maxRaces {
		response, err := s.tryChange(ctx, status, c, w)
		if errors.Is(err, ErrVersion) && !mismatched {
			// The version may have changed because a copy of this request ran while we
			// waited for the row: then the next try finds its answer.
			mismatched = true
			continue
		}
		if postgres.Code(err) != postgres.UniqueViolation {
			return response, postgres.Wrap(w.Key.Operation, err)
		}
		// A concurrent request committed this key, and our whole statement rolled back:
		// the next try finds its answer. Or the key has expired and is deleted now.
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

// queryRow runs the change in one round trip, for purchase events after waiting for their
// turn: a batch is one transaction, and each of its statements sees everything that was
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
	// Close returns the error of the commit.
	return errors.Join(turnErr, scanErr, r.results.Close())
}
