package transfer

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Report compares the balances of accounts with their ledger, at one moment.
type Report struct {
	Balanced   bool            `json:"balanced" doc:"No currency's total differs from 0, and no account of this page from its ledger." example:"true"`
	Currencies []CurrencyTotal `json:"currencies" nullable:"false"`
	// WithoutEntries are transfers whose ledger entries are not written yet.
	WithoutEntries int          `json:"transfersWithoutEntries" doc:"Their ledger entries are not written yet; more than a moment's worth means that ledger does not run." example:"0"`
	OldestWithout  *time.Time   `json:"oldestWithoutEntries,omitempty"`
	Checked        int          `json:"accountsChecked" doc:"On this page." example:"2"`
	Differences    []Difference `json:"differences" nullable:"false" doc:"Accounts of this page that do not hold what their ledger says." example:"[]"`
	NextCursor     string       `json:"next_cursor,omitempty" doc:"Pass it as cursor to check the next accounts; absent on the last page."`
}

// CurrencyTotal is all money of a currency.
type CurrencyTotal struct {
	Currency string `json:"currency" example:"EUR"`
	Accounts int    `json:"accounts" example:"2"`
	Held     Number `json:"held" doc:"By owners." example:"100.5"`
	Issued   Number `json:"issued" doc:"What the system's account owes, as a negative number." example:"-100.5"`
	Total    Number `json:"total" doc:"The sum of both: 0 unless money was made or lost." example:"0"`
}

// Difference is an account whose balance differs from its ledger.
type Difference struct {
	AccountID      int64  `json:"accountId"`
	Balance        Number `json:"balance"`
	Ledger         Number `json:"ledger" doc:"The sum of its entries."`
	WithoutEntries Number `json:"withoutEntries" doc:"The sum of its transfers that have no entries yet."`
	Difference     Number `json:"difference" doc:"What it holds beyond both."`
}

const totalsSQL = `
SELECT currency, count(*) FILTER (WHERE owner_user_id IS NOT NULL),
       coalesce(sum(balance) FILTER (WHERE owner_user_id IS NOT NULL), 0)::text,
       coalesce(sum(balance) FILTER (WHERE owner_user_id IS NULL), 0)::text,
       sum(balance)::text, sum(balance) = 0
FROM core.account GROUP BY currency ORDER BY currency`

// Transfers without entries are added up once for all accounts of the page, since there
// are many when ledger does not run.
const differencesSQL = `
WITH page AS MATERIALIZED (SELECT account_id, balance FROM core.account WHERE account_id > $1 ORDER BY account_id LIMIT $2),
     due AS MATERIALIZED (
	SELECT entry.account_id, sum(entry.amount) AS sum
	FROM core.ledger_due JOIN core.transfer t USING (transfer_id),
	LATERAL (VALUES (t.to_account_id, t.amount), (t.from_account_id, -t.amount)) entry (account_id, amount)
	WHERE entry.account_id IN (SELECT account_id FROM page)
	GROUP BY entry.account_id)
SELECT a.account_id, a.balance::text, l.sum::text, w.sum::text, (a.balance - l.sum - w.sum)::text, a.balance = l.sum + w.sum
FROM page a,
LATERAL (SELECT coalesce(sum(CASE side WHEN 'CREDIT' THEN amount ELSE -amount END), 0) AS sum
         FROM core.ledger WHERE account_id = a.account_id) l,
LATERAL (SELECT coalesce((SELECT due.sum FROM due WHERE due.account_id = a.account_id), 0) AS sum) w
ORDER BY a.account_id`

// CheckBalances compares up to limit accounts beyond cursor with their ledger, and adds
// up all money. It reads every entry of those accounts and every account's balance.
func (s *Store) CheckBalances(ctx context.Context, from string, limit int) (r Report, err error) {
	after, err := cursor.ReadNumber(from, 0)
	if err != nil {
		return Report{}, err
	}
	limit = cursor.Limit(limit)
	// One snapshot: a transfer between two of the queries would look like a difference.
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		r.Balanced = true
		if err := r.totals(ctx, tx); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT count(*), min(created_at) FROM core.ledger_due`).Scan(&r.WithoutEntries, &r.OldestWithout); err != nil {
			return err
		}
		return r.differences(ctx, tx, after, limit)
	})
	if r.OldestWithout != nil {
		*r.OldestWithout = r.OldestWithout.UTC()
	}
	return r, postgres.Wrap("check balances", err)
}

func (r *Report) totals(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, totalsSQL)
	if err != nil {
		return err
	}
	r.Currencies, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c CurrencyTotal, err error) {
		var held, issued, total string
		var balanced bool
		err = row.Scan(&c.Currency, &c.Accounts, &held, &issued, &total, &balanced)
		c.Held, c.Issued, c.Total = number(held), number(issued), number(total)
		r.Balanced = r.Balanced && balanced
		return c, err
	})
	return err
}

func (r *Report) differences(ctx context.Context, tx pgx.Tx, after int64, limit int) error {
	rows, err := tx.Query(ctx, differencesSQL, after, limit)
	if err != nil {
		return err
	}
	defer rows.Close()
	r.Differences = []Difference{}
	var last int64
	for rows.Next() {
		var d Difference
		var balance, ledger, without, difference string
		var same bool
		if err := rows.Scan(&last, &balance, &ledger, &without, &difference, &same); err != nil {
			return err
		}
		r.Checked++
		if !same {
			d.AccountID, d.Balance, d.Ledger, d.WithoutEntries, d.Difference = last, number(balance), number(ledger), number(without), number(difference)
			r.Differences = append(r.Differences, d)
			r.Balanced = false
		}
	}
	if r.Checked == limit {
		r.NextCursor = cursor.At(cursor.Number(last))
	}
	return rows.Err()
}
