package lease_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A worker claims a batch, works on it outside any transaction until the claim's Deadline,
// and settles each row. A row that failed is due again after its backoff. A row that is
// never settled, because its worker died, is claimed again when its lease ends.
func ExampleQueue() {
	t := kit.ForExample()
	defer t.End()
	pool, ctx := kit.Pool(t), t.Context()
	_, err := pool.Exec(ctx, `
		CREATE TABLE mails (
			mail_id uuid PRIMARY KEY, recipient text, -- and what every leased table has:
			status text NOT NULL DEFAULT 'PENDING', next_retry_at timestamptz NOT NULL DEFAULT now(), attempt_count int NOT NULL DEFAULT 0,
			claim_token uuid, claim_size int, locked_by text, locked_at timestamptz, lease_until timestamptz, finished_at timestamptz, last_error text);
		INSERT INTO mails (mail_id, recipient) VALUES (gen_random_uuid(), 'ann')`)
	kit.Must(t, err)
	policy := lease.DefaultPolicy
	policy.BackoffBase = time.Millisecond
	queue := lease.New(pool, lease.Table{Name: "mails", ID: "mail_id", Columns: "recipient", InFlight: "SENDING", Done: "SENT"},
		policy, "worker-1", func(recipient *string) []any { return []any{recipient} })

	work := func(send func(recipient string) error) (worked bool) {
		claim, err := queue.Claim(ctx)
		kit.Must(t, err)
		var outcome lease.Outcome
		for _, row := range claim.Rows {
			err := send(row.Row)
			fmt.Printf("attempt %d for %s: %v\n", row.Attempt, row.Row, err)
			if err != nil {
				outcome.Retry = append(outcome.Retry, lease.Failure{ID: row.ID, Reason: err})
			} else {
				outcome.Done = append(outcome.Done, row.ID)
			}
		}
		_, err = claim.Settle(ctx, outcome)
		kit.Must(t, err)
		return len(claim.Rows) > 0
	}
	work(func(string) error { return errors.New("mailbox full") })
	kit.Eventually(t, "it is due again", func() bool { return work(func(string) error { return nil }) })

	var status string
	kit.Must(t, pool.QueryRow(ctx, `SELECT status FROM mails`).Scan(&status))
	fmt.Println(status)
	// Output:
	// attempt 1 for ann: mailbox full
	// attempt 2 for ann: <nil>
	// SENT
}

// A worker that was paused for longer than its lease does not change rows that another one
// holds.
func ExampleClaim_Finish() {
	t := kit.ForExample()
	defer t.End()
	pool, ctx := kit.Pool(t), t.Context()
	f := fixture{t: t, ctx: ctx, pool: pool, table: outboxTable, policy: lease.DefaultPolicy}
	f.policy.Lease = 10 * time.Millisecond
	ids := f.insert(1)

	slow, err := f.worker("slow").Claim(ctx)
	kit.Must(t, err)
	var other *lease.Claim[string]
	kit.Eventually(t, "the lease has ended", func() bool {
		other, err = f.worker("other").Claim(ctx)
		kit.Must(t, err)
		return len(other.Rows) > 0
	})
	lost, err := slow.Finish(ctx, []uuid.UUID{ids[0]})
	fmt.Println(len(slow.Rows), "claimed,", lost, "lost,", err)
	// Output: 1 claimed, 1 lost, <nil>
}
