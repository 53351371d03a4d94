package lease

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Outcome sorts the rows of a claim by their results.
type Outcome struct {
	Done     []uuid.UUID
	Retry    []Failure // failed, and may be retried
	Returned []Failure // not attempted
	Dead     []Failure // can never succeed
}

// settleTimeout bounds the statements after the work. If it outlasts a short lease, the
// fencing token still protects rows that others hold.
const settleTimeout = 5 * time.Second

// Settle records an outcome, in one statement for each kind, and reports it. It does so
// even after the end of ctx, because the work is done.
func (c *Claim[T]) Settle(ctx context.Context, o Outcome) (Report, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	lostDone, finishErr := c.Finish(ctx, o.Done)
	worn, lostRetry, retryErr := c.Retry(ctx, o.Retry)
	lostReturned, returnErr := c.Return(ctx, o.Returned)
	lostDead, deadErr := c.GiveUp(ctx, o.Dead)
	return Report{
		Claimed:   len(c.Rows),
		Done:      len(o.Done) - lostDone,
		Retried:   len(o.Retry) - worn - lostRetry + len(o.Returned) - lostReturned,
		Dead:      len(o.Dead) - lostDead + worn,
		LostLease: lostDone + lostRetry + lostReturned + lostDead,
		More:      c.Full(),
	}, errors.Join(finishErr, retryErr, returnErr, deadErr)
}
