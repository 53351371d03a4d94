package transfer

import (
	"context"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// ledgerBatch is how many transfers WriteLedger takes at once.
const ledgerBatch = 200

// Taking a transfer out of ledger_due and writing its entries is one statement, so
// that a crash leaves both or neither.
const ledgerSQL = `
WITH due AS MATERIALIZED (
	SELECT transfer_id FROM core.ledger_due ORDER BY transfer_id LIMIT $1 FOR UPDATE SKIP LOCKED
), taken AS (
	DELETE FROM core.ledger_due d USING due WHERE d.transfer_id = due.transfer_id RETURNING d.transfer_id
), written AS (
	INSERT INTO core.ledger (transfer_id, account_id, side, amount)
	SELECT t.transfer_id, e.account_id, e.side, t.amount
	FROM taken JOIN core.transfer t USING (transfer_id),
	     LATERAL (VALUES (t.from_account_id, 'DEBIT'), (t.to_account_id, 'CREDIT')) AS e(account_id, side)
	ON CONFLICT DO NOTHING
)
SELECT count(*) FROM taken`

// WriteLedger is TX2: it writes the entries of transfers that have none yet. Any
// number of processes may call it.
func (s *Store) WriteLedger(ctx context.Context) (lease.Report, error) {
	var n int
	err := postgres.Retry(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, ledgerSQL, ledgerBatch).Scan(&n)
	})
	return lease.Report{Claimed: n, Done: n, More: n == ledgerBatch}, postgres.Wrap("write ledger", err)
}
