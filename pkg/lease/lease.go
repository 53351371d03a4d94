// Package lease lets many workers share a table of work without losing a row or
// finishing it twice. A worker claims rows for a limited time, does the work outside any
// transaction, and finishes, retries or fails the rows.
//
// Three things make it safe. Every claim takes a fresh fencing token, and nothing changes
// a claimed row without that token: a worker that was paused for longer than its lease (a
// zombie) can no longer touch rows that another worker holds, and learns how many it
// lost. The attempt is counted at the claim, so a payload that kills its worker still
// ends. The rows claimed with it are claimed again in ever smaller batches until the bad
// row is alone; only a death in a claim of one row counts as an attempt. And the
// database's clock alone decides when a lease ends; a worker stops early by its own
// monotonic clock, which no time server can move.
//
// A leased table has these columns; migrations/ has three such tables:
//
//	status, attempt_count, next_retry_at, finished_at, last_error,
//	claim_token, claim_size, locked_by, locked_at, lease_until
//
// and one partial index, (next_retry_at) WHERE finished_at IS NULL. A claim
// changes neither column, so it is a HOT update; rows in backoff lie behind the scanned
// range of the index, and finished rows are not in it, so neither slows a claim.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// ErrExhausted is the reason of a row that used up its attempts and was never finished:
// each of its workers was killed or cut off.
var ErrExhausted = errors.New("its lease ended at the last attempt: the worker never came back")

// Table describes a leased table. All fields become SQL, so they must be constants.
type Table struct {
	Name     string // with its schema
	ID       string // uuid primary key
	Columns  string // extra columns that a claim returns
	Where    string // condition of the rows that may be claimed; "" for all
	InFlight string // status while claimed: IN_FLIGHT, PROCESSING
	Done     string // status when finished: PUBLISHED, SENT
	// DeadLetter is an optional INSERT … SELECT … FROM dead, run in the statement
	// that fails rows; dead has all columns of the failed rows.
	DeadLetter string
}

// Statuses that every leased table shares.
const (
	Pending = "PENDING"
	Failed  = "FAILED"
)

// Policy sets the limits. The zero value is not valid; see DefaultPolicy.
type Policy struct {
	Batch       int           // rows a claim takes at most
	Lease       time.Duration // how long a claim holds
	MaxAttempts int           // claims before a row is FAILED
	BackoffBase time.Duration
	BackoffCap  time.Duration
}

// DefaultPolicy has the defaults of the settings.
var DefaultPolicy = Policy{Batch: 200, Lease: 30 * time.Second, MaxAttempts: 10, BackoffBase: time.Second, BackoffCap: time.Minute}

// workFraction of a lease is for the work, and the rest for the statement that finishes it.
const workFraction = 0.6

// maxErrorBytes bounds last_error.
const maxErrorBytes = 1000

// Queue claims rows of one table. T is what its extra columns scan into.
type Queue[T any] struct {
	pool   *pgxpool.Pool
	policy Policy
	worker string
	scan   func(*T) []any
	sql    statements
}

// New returns a queue over table. locked_by shows worker, for operators; scan returns
// pointers into a T in the order of Table.Columns.
func New[T any](pool *pgxpool.Pool, table Table, policy Policy, worker string, scan func(*T) []any) *Queue[T] {
	return &Queue[T]{pool: pool, policy: policy, worker: worker, scan: scan, sql: statementsOf(table)}
}

// Claimed is one row that the worker holds.
type Claimed[T any] struct {
	ID uuid.UUID
	// Attempt is this claim's number, from 1; claims that ended with their worker count
	// only if the row was alone in them.
	Attempt int
	// Exhausted rows used up their attempts and then lost their lease, alone: the
	// worker must only fail them.
	Exhausted bool
	Row       T
}

// Claim holds the rows of one claim. Only its methods change them.
type Claim[T any] struct {
	Rows []Claimed[T]
	// Deadline is when work on the rows must stop, by this machine's monotonic
	// clock: well before the lease ends.
	Deadline time.Time

	queue *Queue[T]
	token uuid.UUID
	// leftBehind means that these rows' last worker died: more rows of it wait for the
	// next claim.
	leftBehind bool
}

// Full reports whether the claim reached its limit, so there are probably more rows.
func (c *Claim[T]) Full() bool { return c.leftBehind || len(c.Rows) >= c.queue.policy.Batch }

// Failure is a row whose work failed, and why.
type Failure struct {
	ID     uuid.UUID
	Reason error
	// After, when above zero, replaces the backoff, as the receiver asked.
	After time.Duration
}

// Claim takes up to Policy.Batch due rows: PENDING, or with an expired lease; of rows
// whose lease expired together, half. It returns an empty claim when there are none.
func (q *Queue[T]) Claim(ctx context.Context) (*Claim[T], error) {
	token := uuid.New()
	// The lease starts in the database after this moment, so a deadline measured from
	// here can only be early.
	started := time.Now()
	rows, err := q.pool.Query(ctx, q.sql.claim, q.policy.Batch, token, q.worker, q.policy.Lease, q.policy.MaxAttempts)
	if err != nil {
		return nil, postgres.Wrap("claim", err)
	}
	claim := &Claim[T]{Deadline: started.Add(time.Duration(float64(q.policy.Lease) * workFraction)), queue: q, token: token}
	claim.Rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Claimed[T], error) {
		var c Claimed[T]
		err := row.Scan(append([]any{&c.ID, &c.Attempt, &claim.leftBehind, &c.Exhausted}, q.scan(&c.Row)...)...)
		return c, err
	})
	if err != nil {
		return nil, postgres.Wrap("claim", err)
	}
	return claim, nil
}

// Finish marks rows as done, in one statement. lost counts the rows that this claim no
// longer holds, which stay unchanged.
func (c *Claim[T]) Finish(ctx context.Context, ids []uuid.UUID) (lost int, err error) {
	return c.exec(ctx, "finish", c.queue.sql.finish, ids, ids, c.token)
}

// Retry returns rows, each with its reason, to be due after their backoff:
// min(cap, base·2^failures)·(0.5+random). Rows at their last attempt become FAILED
// instead; dead counts them.
func (c *Claim[T]) Retry(ctx context.Context, failures []Failure) (dead, lost int, err error) {
	again, last := c.split(failures)
	ids, reasons, after := columns(again)
	p := c.queue.policy
	lost, err = c.exec(ctx, "retry", c.queue.sql.retry, ids, ids, c.token, reasons, after, p.BackoffBase.Seconds(), p.BackoffCap.Seconds())
	if err != nil {
		return 0, lost, err
	}
	lostLast, err := c.GiveUp(ctx, last)
	if err != nil {
		return 0, lost, err
	}
	return len(last) - lostLast, lost + lostLast, nil
}

// split separates failures that may be retried from those at their last attempt.
func (c *Claim[T]) split(failures []Failure) (again, last []Failure) {
	attempts := make(map[uuid.UUID]int, len(c.Rows))
	for _, row := range c.Rows {
		attempts[row.ID] = row.Attempt
	}
	for _, f := range failures {
		if attempts[f.ID] >= c.queue.policy.MaxAttempts {
			last = append(last, f)
		} else {
			again = append(again, f)
		}
	}
	return again, last
}

// Return returns rows without using up an attempt, because something that they need (a
// broker, say) is away. They are due again after a backoff.
func (c *Claim[T]) Return(ctx context.Context, failures []Failure) (lost int, err error) {
	ids, reasons, _ := columns(failures)
	return c.exec(ctx, "return", c.queue.sql.giveBack, ids, ids, c.token, reasons, c.queue.policy.BackoffBase.Seconds())
}

// GiveUp makes rows FAILED, and writes their dead letters in the same statement.
func (c *Claim[T]) GiveUp(ctx context.Context, failures []Failure) (lost int, err error) {
	ids, reasons, _ := columns(failures)
	return c.exec(ctx, "give up", c.queue.sql.giveUp, ids, ids, c.token, reasons)
}

func (c *Claim[T]) exec(ctx context.Context, operation, sql string, ids []uuid.UUID, args ...any) (lost int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	var changed int
	err = postgres.Retry(ctx, func(ctx context.Context) error {
		return c.queue.pool.QueryRow(ctx, sql, args...).Scan(&changed)
	})
	if err != nil {
		return 0, postgres.Wrap(operation, err)
	}
	return len(ids) - changed, nil
}

func columns(failures []Failure) (ids []uuid.UUID, reasons []string, afterSeconds []float64) {
	for _, f := range failures {
		ids = append(ids, f.ID)
		reasons = append(reasons, postgres.Storable(fmt.Sprint(f.Reason), maxErrorBytes))
		afterSeconds = append(afterSeconds, f.After.Seconds())
	}
	return ids, reasons, afterSeconds
}
