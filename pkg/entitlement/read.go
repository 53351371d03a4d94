package entitlement

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// List returns up to limit entitlements of a user by stock_keeping_unit, and the
// cursor of the next page, "" on the last. A user without any has an empty list.
func (s *Store) List(ctx context.Context, userID, from string, limit int) ([]Entitlement, string, error) {
	after, err := cursor.ReadText(from)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	rows, err := s.pool.Query(ctx, `
		SELECT stock_keeping_unit, status, version, updated_at
		FROM entitlement.entitlements
		WHERE user_id = $1 AND stock_keeping_unit > $2
		ORDER BY stock_keeping_unit
		LIMIT $3`, userID, after, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("list entitlements", err)
	}
	list, err := pgx.CollectRows(rows, scanEntitlement)
	if err != nil {
		return nil, "", postgres.Wrap("list entitlements", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.Text(list[last].StockKeepingUnit) })
	return page, next, nil
}

// Get returns one entitlement, or ErrNotFound.
func (s *Store) Get(ctx context.Context, userID, sku string) (Entitlement, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT stock_keeping_unit, status, version, updated_at
		FROM entitlement.entitlements
		WHERE user_id = $1 AND stock_keeping_unit = $2`, userID, sku)
	if err != nil {
		return Entitlement{}, postgres.Wrap("read entitlement", err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanEntitlement)
	if errors.Is(err, pgx.ErrNoRows) {
		return Entitlement{}, ErrNotFound
	}
	return e, postgres.Wrap("read entitlement", err)
}

func scanEntitlement(row pgx.CollectableRow) (Entitlement, error) {
	var e Entitlement
	err := row.Scan(&e.StockKeepingUnit, &e.Status, &e.Version, &e.UpdatedAt)
	e.UpdatedAt = e.UpdatedAt.UTC()
	return e, err
}

// Audited is one change in an entitlement's history.
type Audited struct {
	Version    int64     `json:"version" doc:"The entitlement's version after the change." example:"12"`
	Operation  string    `json:"operation" enum:"grant,revoke" doc:"The operation."`
	Status     Status    `json:"status" enum:"ACTIVE,REVOKED" doc:"The status after the change."`
	Reason     string    `json:"reason" doc:"The caller's reason." example:"purchase"`
	PurchaseID string    `json:"purchase_id" doc:"The caller's purchase id." example:"p_456"`
	Caller     string    `json:"caller" doc:"The caller." example:"purchase-service"`
	EventID    string    `json:"event_id" doc:"The change's event." format:"uuid"`
	OccurredAt time.Time `json:"occurred_at" doc:"When it was committed."`
}

// History returns up to limit changes of one entitlement, newest first, and the
// cursor of the next page. It reaches back as far as the audit is kept.
func (s *Store) History(ctx context.Context, userID, sku, from string, limit int) ([]Audited, string, error) {
	before, err := cursor.ReadNumber(from, math.MaxInt64)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	rows, err := s.pool.Query(ctx, `
		SELECT version, operation, status, reason, purchase_id, caller, event_id::text, occurred_at
		FROM entitlement.entitlement_audit
		WHERE user_id = $1 AND stock_keeping_unit = $2 AND version < $3
		ORDER BY version DESC
		LIMIT $4`, userID, sku, before, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("read history", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Audited, err error) {
		err = row.Scan(&a.Version, &a.Operation, &a.Status, &a.Reason, &a.PurchaseID, &a.Caller, &a.EventID, &a.OccurredAt)
		a.OccurredAt = a.OccurredAt.UTC()
		return a, err
	})
	if err != nil {
		return nil, "", postgres.Wrap("read history", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.Number(list[last].Version) })
	return page, next, nil
}

// Changes returns how many grants and revokes happened from one time until before another,
// by the clocks of the processes that made them; without those of a process whose clock is
// over a minute wrong.
func (s *Store) Changes(ctx context.Context, from, until time.Time) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(*) FROM entitlement.entitlement_audit
		WHERE audit_id >= $1 AND audit_id < $2 AND occurred_at >= $3 AND occurred_at < $4`,
		id.Before(from), id.Before(until), from.Add(-clockSkew), until.Add(clockSkew)).Scan(&n)
	return n, postgres.Wrap("count changes", err)
}

// clockSkew is how far the clocks of a process and the database may be apart: one makes an
// audit row's id, the other its time, by which partitions are chosen.
const clockSkew = time.Minute
