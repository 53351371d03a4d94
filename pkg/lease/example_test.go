package lease_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/lease"
)

// A worker claims a batch, works on it outside any transaction, and says what
// became of each row. Whatever it does not say, because it died, is claimed
// again when its lease ends.
func ExampleQueue() {
	var pool *pgxpool.Pool // of the application
	type mail struct{ to, text string }
	send := func(mail) error { return errors.New("mailbox full") }

	queue := lease.New(pool, lease.Table{
		Name: "app.mails", ID: "mail_id", Columns: "recipient, body",
		InFlight: "SENDING", Done: "SENT",
	}, lease.DefaultPolicy, "worker-1", func(m *mail) []any { return []any{&m.to, &m.text} })

	work := func(ctx context.Context) error {
		claim, err := queue.Claim(ctx)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithDeadline(ctx, claim.Deadline)
		defer cancel()
		var sent []uuid.UUID
		var failed, dead []lease.Failure
		for _, row := range claim.Rows {
			if row.Exhausted {
				dead = append(dead, lease.Failure{ID: row.ID, Reason: lease.ErrExhausted})
			} else if err := send(row.Row); err != nil {
				failed = append(failed, lease.Failure{ID: row.ID, Reason: err})
			} else {
				sent = append(sent, row.ID)
			}
		}
		lost, err := claim.Finish(ctx, sent)
		if err != nil {
			return err
		}
		fmt.Println(lost, "rows were somebody else's by then")
		if _, _, err = claim.Retry(ctx, failed); err != nil {
			return err
		}
		_, err = claim.GiveUp(ctx, dead)
		return err
	}
	_ = work
}
