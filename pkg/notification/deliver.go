package notification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/spans"
)

// Outgoing is a notification on its way to its recipient.
type Outgoing struct {
	ID          string
	EventID     string
	EventType   string
	UserID      string
	OccurredAt  time.Time
	Traceparent string
	Attempt     int // from 1
	Payload     json.RawMessage
}

// Channel sends notifications. Send returns nil when the notification was delivered, an
// error made by RetryAfter or Never when the receiver asked for it, and any other error
// for a retry after the usual backoff. After a crash it may be called again for a
// delivered notification: receivers deduplicate by ID.
type Channel interface {
	Send(context.Context, Outgoing) error
}

type retryAfter struct {
	after  time.Duration
	reason error
}

func (e *retryAfter) Error() string { return fmt.Sprintf("%v (again after %s)", e.reason, e.after) }
func (e *retryAfter) Unwrap() error { return e.reason }

// MaxRetryAfter bounds the delay that a receiver may ask for.
const MaxRetryAfter = time.Hour

// RetryAfter is the error of a receiver that asked for a retry after d.
func RetryAfter(d time.Duration, reason error) error {
	return &retryAfter{min(d, MaxRetryAfter), reason}
}

type never struct{ reason error }

func (e *never) Error() string { return e.reason.Error() }
func (e *never) Unwrap() error { return e.reason }

// Never is the error of a notification that can never be delivered.
func Never(reason error) error { return &never{reason} }

// IsNever reports whether err was made by Never.
func IsNever(err error) bool {
	var n *never
	return errors.As(err, &n)
}

// errNoTime is the result of a row whose turn comes after the claim's deadline.
var errNoTime = errors.New("no time was left in this lease")

// Deliverer sends due notifications through one channel.
type Deliverer struct {
	// OnSent, if set before the first Step, is called after a batch was recorded as SENT,
	// with its users, each once. It is a hint and no record: it is not called when
	// recording failed, and it may name users whose rows another worker took over. Step
	// waits for it, so it must not block.
	OnSent func(ctx context.Context, userIDs []string)
	// SendTimeout, if set before the first Step, is how long a send may take: none begins
	// that the end of the work on a claim could cut off, which would count as an attempt.
	SendTimeout time.Duration

	queue   *lease.Queue[Outgoing]
	channel Channel
	log     *slog.Logger
}

// parallel bounds the concurrent sends of a batch; a slow receiver delays only its
// share.
const parallel = 16

// A requeued notification that fails again keeps its one letter.
const deadLetterSQL = `
	INSERT INTO notification.notification_dlq (notification_id, event_id, user_id, event_type, payload, error)
	SELECT notification_id, event_id::text, user_id, event_type, payload, last_error FROM dead
	ON CONFLICT (notification_id) DO UPDATE SET error = excluded.error, created_at = now()`

// NewDeliverer returns a deliverer; locked_by shows worker.
func NewDeliverer(pool *pgxpool.Pool, policy lease.Policy, worker string, channel Channel, log *slog.Logger) *Deliverer {
	queue := lease.New(pool, lease.Table{
		Name: Table, ID: "notification_id",
		Columns:  "event_id::text, event_type, user_id, occurred_at, traceparent, payload",
		InFlight: Processing, Done: Sent,
		DeadLetter: deadLetterSQL,
	}, policy, worker, func(o *Outgoing) []any {
		return []any{&o.EventID, &o.EventType, &o.UserID, &o.OccurredAt, &o.Traceparent, &o.Payload}
	})
	return &Deliverer{queue: queue, channel: channel, log: log}
}

// Step claims one batch, sends it and records the results. When ctx ends, it begins no
// further send; sends in progress continue as long as the lease allows, since a receiver
// may have them already.
func (d *Deliverer) Step(ctx context.Context) (lease.Report, error) {
	claim, err := d.queue.Claim(ctx)
	if err != nil || len(claim.Rows) == 0 {
		return lease.Report{}, err
	}
	sending, cancel := context.WithDeadline(context.WithoutCancel(ctx), claim.Deadline)
	ctx, traced := spans.Start(ctx, spans.About{Operation: "deliver", Of: "notification", Kind: trace.SpanKindClient},
		len(claim.Rows), func(i int) (id, traceparent string) { return textID(claim.Rows[i].ID), claim.Rows[i].Row.Traceparent })
	defer traced.End() // when the rows are SENT
	results := d.send(ctx, sending, claim.Rows, traced)
	cancel()
	var outcome lease.Outcome
	for i, row := range claim.Rows {
		traced.Ended(i, results[i])
		d.sort(ctx, row, results[i], &outcome)
	}
	report, err := claim.Settle(ctx, outcome)
	if d.OnSent != nil && err == nil && report.Done > 0 {
		d.OnSent(context.WithoutCancel(ctx), recipients(claim.Rows, results))
	}
	return report, err
}

// recipients returns the users of the rows that were sent, each once.
func recipients(rows []lease.Claimed[Outgoing], results []error) []string {
	var userIDs []string
	known := map[string]bool{}
	for i, row := range rows {
		if results[i] == nil && !known[row.Row.UserID] {
			known[row.Row.UserID] = true
			userIDs = append(userIDs, row.Row.UserID)
		}
	}
	return userIDs
}

// sort decides how a row is settled.
func (d *Deliverer) sort(ctx context.Context, row lease.Claimed[Outgoing], result error, o *lease.Outcome) {
	failure := lease.Failure{ID: row.ID, Reason: result}
	var later *retryAfter
	switch {
	case result == nil:
		o.Done = append(o.Done, row.ID)
		return
	case errors.Is(result, errNoTime):
		// It was not sent, so this counts as no attempt.
		o.Returned = append(o.Returned, failure)
		return
	case IsNever(result), errors.Is(result, lease.ErrExhausted):
		o.Dead = append(o.Dead, failure)
	case errors.As(result, &later):
		failure.After = later.after
		o.Retry = append(o.Retry, failure)
	default:
		o.Retry = append(o.Retry, failure)
	}
	d.log.WarnContext(ctx, "notification not sent", "notification_id", textID(row.ID),
		"event_id", row.Row.EventID, "attempt", row.Attempt, "error", result.Error())
}

// send returns one result for each row. Rows whose turn comes after the end of ctx, or so
// late that sending's deadline could cut them off, are not sent.
func (d *Deliverer) send(ctx, sending context.Context, rows []lease.Claimed[Outgoing], traced *spans.Batch) []error {
	results := make([]error, len(rows))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, row := range rows {
		if row.Exhausted {
			results[i] = lease.ErrExhausted
			continue
		}
		outgoing := row.Row
		outgoing.ID, outgoing.Attempt = textID(row.ID), row.Attempt
		group.Go(func() error {
			results[i] = d.sendOne(ctx, traced.Context(sending, i), outgoing)
			return nil
		})
	}
	_ = group.Wait() // the functions above return nil
	return results
}

func (d *Deliverer) sendOne(ctx, sending context.Context, o Outgoing) (err error) {
	if end, _ := sending.Deadline(); ctx.Err() != nil || time.Until(end) <= d.SendTimeout {
		return errNoTime
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("sending panicked: %v", r)
		}
	}()
	return d.channel.Send(sending, o)
}
