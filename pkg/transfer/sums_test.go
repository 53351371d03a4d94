package transfer_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// inSnapshot checks the promises that hold at every moment: each statement lists the
// violations of one.
var inSnapshot = []string{
	`SELECT format('%s %s: not all money is there', currency, sum(balance)) FROM core.account GROUP BY currency HAVING sum(balance) <> 0`,
	`SELECT format('account %s owes: %s', account_id, balance) FROM core.account WHERE owner_user_id IS NOT NULL AND balance < 0`,
	`SELECT format('account %s has %s, by its transfers %s', account_id, balance, moved) FROM core.account a LEFT JOIN (
		SELECT account_id, sum(amount) AS moved FROM (
			SELECT to_account_id AS account_id, amount FROM core.transfer UNION ALL SELECT from_account_id, -amount FROM core.transfer) x
		GROUP BY account_id) m USING (account_id) WHERE balance <> coalesce(moved, 0)`,
	`SELECT format('transfer %s is between currencies', transfer_id) FROM core.transfer t
		JOIN core.account f ON f.account_id = t.from_account_id JOIN core.account o ON o.account_id = t.to_account_id
		WHERE NOT (t.currency = f.currency AND t.currency = o.currency)`,
	`SELECT format('%s transfers, %s keys, %s events, %s entries, %s due', transfers, keys, events, entries, due) FROM (SELECT
			(SELECT count(*) FROM core.transfer) AS transfers,
			(SELECT count(*) FROM core.transfer WHERE kind = 'OPENING') AS openings,
			(SELECT count(*) FROM integration.idempotency_key WHERE scope = 'transfer' AND status = 'SUCCEEDED') AS keys,
			(SELECT count(*) FROM integration.outbox_events WHERE event_type = 'TransferCompleted') AS events,
			(SELECT count(*) FROM core.ledger) AS entries,
			(SELECT count(*) FROM core.ledger_due) AS due) c
		WHERE transfers <> keys + openings OR transfers <> events OR entries <> 2 * (transfers - due)`,
}

// atTheEnd checks the promises that hold once the ledger is written and no money moves.
var atTheEnd = []string{
	`SELECT 'transfer ' || transfer_id || ' has no entries' FROM core.ledger_due`,
	`SELECT 'key ' || idempotency_key || ' is in progress' FROM integration.idempotency_key WHERE status = 'IN_PROGRESS'`,
	`SELECT 'a terminal answer changed: key ' || note FROM integration.changed_after_end`,
	`SELECT format('transfer %s has the entries %s %s %s', transfer_id, l.accounts, l.sides, l.amounts) FROM core.transfer t FULL JOIN (
		SELECT transfer_id, array_agg(account_id ORDER BY side) AS accounts, array_agg(side ORDER BY side) AS sides, array_agg(amount) AS amounts
		FROM core.ledger GROUP BY transfer_id) l USING (transfer_id)
		WHERE (l.accounts = ARRAY[t.to_account_id, t.from_account_id] AND l.sides = ARRAY['CREDIT', 'DEBIT'] AND l.amounts = ARRAY[t.amount, t.amount]) IS NOT TRUE`,
	`SELECT format('account %s has %s, by the ledger %s', account_id, balance, entered) FROM core.account a LEFT JOIN (
		SELECT account_id, sum(CASE side WHEN 'CREDIT' THEN amount ELSE -amount END) AS entered FROM core.ledger GROUP BY account_id) l USING (account_id)
		WHERE balance <> coalesce(entered, 0)`,
}

// broken returns the violations of the promises in one snapshot.
func broken(ctx context.Context, pool *pgxpool.Pool, promises ...string) (list []string, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, sql := range promises {
			rows, err := tx.Query(ctx, sql+" LIMIT 10")
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			list = append(list, found...)
		}
		return nil
	})
	return list, err
}

// sums returns the violations of all promises at the end, and the balances that differ
// from the sum of the transfers by math/big.
func sums(ctx context.Context, pool *pgxpool.Pool, all map[string]made) (list []string, err error) {
	if list, err = broken(ctx, pool, slices.Concat(inSnapshot, atTheEnd)...); err != nil {
		return nil, err
	}
	moved := map[int64]*big.Int{}
	at := func(account int64) *big.Int {
		if moved[account] == nil {
			moved[account] = new(big.Int)
		}
		return moved[account]
	}
	for _, m := range all {
		amount := units(m.amount)
		at(m.from).Sub(at(m.from), amount)
		at(m.to).Add(at(m.to), amount)
	}
	err = each(ctx, pool, `SELECT account_id, balance::text FROM core.account`, func(r pgx.CollectableRow) error {
		var account int64
		var balance string
		err := r.Scan(&account, &balance)
		if err == nil && units(balance).Cmp(at(account)) != 0 {
			list = append(list, fmt.Sprintf("account %d has %s, its transfers come to %s/10000", account, balance, at(account)))
		}
		return err
	})
	return list, err
}
