package lease

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Outcome says what became of the rows of a claim.
type Outcome struct {
	Done     []uuid.UUID
	Retry    []Failure // failed, and may be tried again
	Returned []Failure // not tried
	Dead     []Failure // can never be done
}

// settleTimeout bounds the statements after the work. When it outlasts a short
// lease, the fencing token still keeps them from touching what others hold.
const settleTimeout = 5 * time.Second

// Settle writes an outcome down, in one statement for each kind that there is,
// and reports it. It does so even when ctx has ended: the work is done.
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
