package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

const transferColumns = `t.transfer_id, t.from_account_id, t.to_account_id, t.amount::text, t.currency, t.kind, t.reverses, t.created_at`

func scanTransfer(row pgx.CollectableRow) (t Transfer, err error) {
	var key uuid.UUID
	var reverses *uuid.UUID
	var amount string
	err = row.Scan(&key, &t.FromAccountID, &t.ToAccountID, &amount, &t.Currency, &t.Kind, &reverses, &t.CreatedAt)
	t.ID, t.Amount, t.CreatedAt = textID(key), number(amount), t.CreatedAt.UTC()
	if reverses != nil {
		t.Reverses = textID(*reverses)
	}
	return t, err
}

// Get returns a transfer between accounts of any owner, or ErrTransfer.
func (s *Store) Get(ctx context.Context, transferID string) (Transfer, error) {
	return s.get(ctx, transferID, nil)
}

// GetOf returns a transfer from or to an account of owner, or ErrTransfer.
func (s *Store) GetOf(ctx context.Context, owner, transferID string) (Transfer, error) {
	return s.get(ctx, transferID, &owner)
}

func (s *Store) get(ctx context.Context, transferID string, owner *string) (Transfer, error) {
	key, err := parseID(transferID)
	if err != nil {
		return Transfer{}, err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT `+transferColumns+` FROM core.transfer t
		WHERE t.transfer_id = $1 AND ($2::text IS NULL OR EXISTS (
			SELECT FROM core.account a WHERE a.account_id IN (t.from_account_id, t.to_account_id) AND a.owner_user_id = $2))`, key, owner)
	if err != nil {
		return Transfer{}, postgres.Wrap("read transfer", err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, scanTransfer)
	if errors.Is(err, pgx.ErrNoRows) {
		return Transfer{}, ErrTransfer
	}
	return t, postgres.Wrap("read transfer", err)
}

func scanAccount(row pgx.CollectableRow) (a MoneyAccount, err error) {
	var owner *string
	var balance string
	err = row.Scan(&a.ID, &owner, &a.Currency, &balance, &a.CreatedAt)
	if owner != nil {
		a.OwnerID = *owner
	}
	a.Balance, a.CreatedAt = number(balance), a.CreatedAt.UTC()
	return a, err
}

const accountColumns = `account_id, owner_user_id, currency, balance::text, created_at`

// Account returns an account of any owner, or ErrAccount.
func (s *Store) Account(ctx context.Context, accountID int64) (MoneyAccount, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+accountColumns+` FROM core.account WHERE account_id = $1`, accountID)
	if err != nil {
		return MoneyAccount{}, postgres.Wrap("read account", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanAccount)
	if errors.Is(err, pgx.ErrNoRows) {
		return MoneyAccount{}, ErrAccount
	}
	return a, postgres.Wrap("read account", err)
}

// Accounts returns up to limit accounts of owner, the oldest first, and the cursor
// of the next page, "" on the last.
func (s *Store) Accounts(ctx context.Context, owner, from string, limit int) ([]MoneyAccount, string, error) {
	after, err := cursor.ReadNumber(from, 0)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	rows, err := s.pool.Query(ctx, `SELECT `+accountColumns+` FROM core.account
		WHERE owner_user_id = $1 AND account_id > $2 ORDER BY account_id LIMIT $3`, owner, after, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("list accounts", err)
	}
	list, err := pgx.CollectRows(rows, scanAccount)
	if err != nil {
		return nil, "", postgres.Wrap("list accounts", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.Number(list[last].ID) })
	return page, next, nil
}

// Transfers returns up to limit transfers from or to an account, newest first.
func (s *Store) Transfers(ctx context.Context, accountID int64, from string, limit int) ([]Transfer, string, error) {
	before, err := cursor.ReadID(from, uuid.Max)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	// Each half reads one index. No transfer is in both halves, as none has the same
	// account on both sides, so DISTINCT is not needed.
	rows, err := s.pool.Query(ctx, `
		(SELECT `+transferColumns+` FROM core.transfer t WHERE t.from_account_id = $1 AND t.transfer_id < $2 ORDER BY t.transfer_id DESC LIMIT $3)
		UNION ALL
		(SELECT `+transferColumns+` FROM core.transfer t WHERE t.to_account_id = $1 AND t.transfer_id < $2 ORDER BY t.transfer_id DESC LIMIT $3)
		ORDER BY transfer_id DESC LIMIT $3`, accountID, before, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("list transfers", err)
	}
	list, err := pgx.CollectRows(rows, scanTransfer)
	if err != nil {
		return nil, "", postgres.Wrap("list transfers", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte {
		key, _ := parseID(list[last].ID) // textID made it
		return cursor.ID(key)
	})
	return page, next, nil
}

// Entry is one side of a transfer in the ledger.
type Entry struct {
	TransferID string    `json:"transferId" example:"t_01h455vb4pex5vsknk084sn02q"`
	Side       string    `json:"side" enum:"DEBIT,CREDIT" doc:"DEBIT takes from the account, CREDIT gives to it."`
	Amount     Number    `json:"amount" example:"30.0001"`
	CreatedAt  time.Time `json:"createdAt"`
}

// Ledger returns up to limit entries of an account, newest first.
func (s *Store) Ledger(ctx context.Context, accountID int64, from string, limit int) ([]Entry, string, error) {
	before, err := cursor.ReadID(from, uuid.Max)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	rows, err := s.pool.Query(ctx, `
		SELECT transfer_id, side, amount::text, created_at FROM core.ledger
		WHERE account_id = $1 AND transfer_id < $2 ORDER BY transfer_id DESC LIMIT $3`, accountID, before, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("read ledger", err)
	}
	var keys []uuid.UUID
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		var key uuid.UUID
		var amount string
		err = row.Scan(&key, &e.Side, &amount, &e.CreatedAt)
		keys = append(keys, key)
		e.TransferID, e.Amount, e.CreatedAt = textID(key), number(amount), e.CreatedAt.UTC()
		return e, err
	})
	if err != nil {
		return nil, "", postgres.Wrap("read ledger", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.ID(keys[last]) })
	return page, next, nil
}
