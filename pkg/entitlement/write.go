package entitlement

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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

var (
	//go:embed change.sql
	changeSQL string
	//go:embed change_one.sql
	changeOneSQL string
)

// Purchase events for one item take turns, so that each sees all earlier refunds. The
// order of the locks keeps two batches from waiting for each other in a circle.
const turnSQL = `
SELECT pg_advisory_xact_lock(lock) FROM (
	SELECT hashtextextended(user_id || chr(31) || stock_keeping_unit, 0) AS lock
	FROM unnest($1::text[], $2::text[]) AS a (user_id, stock_keeping_unit) ORDER BY lock) turns`

// Changes that share a batch do not wait for long for a lock that another process holds.
const patienceSQL = `SELECT set_config('lock_timeout', '250ms', true)`

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
		a, err := s.writes.Do(ctx, write{c, w, status})
		switch {
		case postgres.Code(err) == postgres.UniqueViolation:
			// A concurrent request committed this key, and our whole statement rolled back:
			// the next try finds its answer. Or the key has expired and is deleted now.
			if _, err := s.pool.Exec(ctx, forgetExpiredSQL, w.Key.Caller, w.Key.Operation, w.Key.Value); err != nil {
				return idempotency.Response{}, postgres.Wrap(w.Key.Operation, err)
			}
		case err != nil:
			return idempotency.Response{}, postgres.Wrap(w.Key.Operation, err)
		case a.hash == nil && mismatched:
			return idempotency.Response{}, ErrVersion
		case a.hash == nil:
			// The version may have changed because a copy of this request ran while we
			// waited for the row: then the next try finds its answer.
			mismatched = true
		case !bytes.Equal(a.hash, w.Key.Hash):
			return idempotency.Response{}, idempotency.ErrReused
		default:
			return a.Response, nil
		}
	}
	return idempotency.Response{}, idempotency.ErrInProgress
}

// write is a change that waits for others to share a commit with.
type write struct {
	Change
	Write
	status Status
}

// keys name the item and the idempotency key.
func (w write) keys() []string {
	return []string{
		"item\x1f" + w.UserID + "\x1f" + w.StockKeepingUnit,
		"key\x1f" + w.Key.Operation + "\x1f" + w.Key.Caller + "\x1f" + w.Key.Value,
	}
}

// answer is the result of a write. It has no hash if If-Match did not match.
type answer struct {
	idempotency.Response
	hash []byte // of the request that was answered
}

// commit makes changes in one round trip and one transaction, in which each statement sees
// everything that was committed before it began.
func (s *Store) commit(ctx context.Context, writes []write) (answers []answer, err error) {
	sql, arguments, order := changeSQL, []any(nil), inOrder(writes)
	if len(writes) == 1 {
		sql, arguments = changeOneSQL, writes[0].arguments(s.retention)
	} else {
		arguments = append(columnsOf(writes, order).arguments(), s.retention)
	}
	err = postgres.Retry(ctx, func(ctx context.Context) error {
		answers = make([]answer, len(writes))
		read := func(rows pgx.Rows) error {
			var nth int
			var a answer
			_, err := pgx.ForEachRow(rows, []any{&nth, &a.Response.Status, &a.Body, &a.ETag, &a.Replayed, &a.hash}, func() error {
				answers[order[nth-1]] = a
				a = answer{}
				return nil
			})
			return err
		}
		batch := preparations(writes)
		if batch.Len() == 0 {
			rows, err := s.pool.Query(ctx, sql, arguments...)
			if err != nil {
				return err
			}
			return read(rows)
		}
		batch.Queue(sql, arguments...).Query(read)
		return s.pool.SendBatch(ctx, batch).Close()
	})
	return answers, err
}

// preparations are the statements before the one that changes, in its transaction.
func preparations(writes []write) *pgx.Batch {
	batch := &pgx.Batch{}
	if len(writes) > 1 {
		batch.Queue(patienceSQL)
	}
	var users, items []string
	for _, w := range writes {
		if w.Purchase {
			users, items = append(users, w.UserID), append(items, w.StockKeepingUnit)
		}
	}
	if len(users) > 0 {
		batch.Queue(turnSQL, users, items)
	}
	return batch
}

// arguments are those of change_one.sql.
func (w write) arguments(retention time.Duration) []any {
	return []any{
		w.UserID, w.StockKeepingUnit, w.status, w.IfMatch,
		w.Key.Caller, w.Key.Operation, w.Key.Value, w.Key.Hash, retention,
		id.New(), w.Reason, w.PurchaseID, w.Traceparent, w.Purchase,
	}
}

// inOrder returns the indexes of writes in the order of their items.
func inOrder(writes []write) []int {
	order := make([]int, len(writes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(writes[a].UserID, writes[b].UserID), strings.Compare(writes[a].StockKeepingUnit, writes[b].StockKeepingUnit))
	})
	return order
}

// columns are writes as the arrays that change.sql takes.
type columns struct {
	users, items, wanted             []string
	versions                         []int64
	callers, operations, keys        []string
	hashes                           [][]byte
	audits                           []uuid.UUID
	reasons, purchases, traceparents []string
	byPurchase                       []bool
}

func columnsOf(writes []write, order []int) (c columns) {
	for _, i := range order {
		w := writes[i]
		c.users, c.items, c.wanted = append(c.users, w.UserID), append(c.items, w.StockKeepingUnit), append(c.wanted, string(w.status))
		c.versions = append(c.versions, w.IfMatch)
		c.callers, c.operations, c.keys = append(c.callers, w.Key.Caller), append(c.operations, w.Key.Operation), append(c.keys, w.Key.Value)
		c.hashes = append(c.hashes, w.Key.Hash)
		c.audits = append(c.audits, id.New())
		c.reasons, c.purchases, c.traceparents = append(c.reasons, w.Reason), append(c.purchases, w.PurchaseID), append(c.traceparents, w.Traceparent)
		c.byPurchase = append(c.byPurchase, w.Purchase)
	}
	return c
}

func (c columns) arguments() []any {
	return []any{
		c.users, c.items, c.wanted, c.versions, c.callers, c.operations, c.keys, c.hashes,
		c.audits, c.reasons, c.purchases, c.traceparents, c.byPurchase,
	}
}
