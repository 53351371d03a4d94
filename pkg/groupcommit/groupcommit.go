// Package groupcommit lets writes that wait for Postgres at the same moment share a
// statement and a commit. Whatever queued while the last batch ran is the next batch: there
// is no timer, so a write that comes alone waits for nobody and runs in its caller's
// goroutine.
//
// A batch is all or nothing, and a write is not: those of a batch that failed run again,
// each alone, so that one that cannot succeed fails alone. A batch that is slow, because it
// waits for a lock, does not hold up the next.
package groupcommit

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Limits of a Queue.
const (
	// batches run at once, each on a connection of its own: while one waits for the disk,
	// the other computes.
	batches = 2
	// slowAfter is when a batch is not counted any more: it waits for a lock, or Postgres
	// hangs.
	slowAfter = 250 * time.Millisecond
	// batchSize bounds the writes of a batch.
	batchSize = 32
	// slowBatches bounds the batches that are not counted.
	slowBatches = 8
	// queued bounds the writes that wait: about the tenth of a second that a caller may
	// wait for nothing.
	queued = 1024
	// batchTimeout bounds a batch; its callers may have gone.
	batchTimeout = 10 * time.Second
)

// ErrFull is for writes that find the queue full. They have not happened.
var ErrFull = &fault.Error{
	Kind: fault.Unavailable, Code: "too_many_writes", RetryAfter: time.Second,
	Detail: "Too many changes wait for the database; send the same request again.",
}

// Queue batches writes W, each with a result R.
type Queue[W, R any] struct {
	// Commit runs writes in one transaction, and returns their results in the same order.
	// A single one may be retried in any way; several must end soon, even if others hold
	// locks that they need.
	Commit func(context.Context, []W) ([]R, error)
	// Keys name what a write changes. Writes with a key in common never share a batch, nor
	// run in two at once; they run in the order in which they came.
	Keys func(W) []string
	// Shared, which may be nil, names what a write also touches. Writes with such a name in
	// common may share a batch, in the order in which they came, but never run in two at once.
	Shared func(W) []string
	// Patience, if it is not zero, is how long a write waits for its batch to begin before
	// it ends with ErrFull.
	Patience time.Duration

	mutex   sync.Mutex
	waiting []*call[W, R]
	running int             // batches that are not slow
	slow    int             // batches that are
	busy    map[string]bool // keys of all batches that have not ended
}

// call is a write that waits.
type call[W, R any] struct {
	ctx    context.Context
	write  W
	keys   []string
	shared []string
	result R
	err    error
	alone  bool // its batch failed, and it may share no other
	ended  chan struct{}
}

// Do runs one write, together with others that wait. Its error is that of Commit, for this
// write alone unless Postgres was away; ErrFull; or ctx's: then the write may happen all the
// same.
func (q *Queue[W, R]) Do(ctx context.Context, write W) (none R, err error) {
	c := &call[W, R]{ctx: ctx, write: write, keys: q.Keys(write), ended: make(chan struct{})}
	if q.Shared != nil {
		c.shared = q.Shared(write)
	}
	own, err := q.enter(c)
	if err != nil {
		return none, err
	}
	if own != nil {
		defer q.leave(own)
		return q.one(c)
	}
	if !q.wait(c) {
		return none, ErrFull
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return none, postgres.Wrap("wait for others", ctx.Err())
	}
	return c.result, c.err
}

// wait reports whether c's batch began in time, or its caller has gone.
func (q *Queue[W, R]) wait(c *call[W, R]) bool {
	if q.Patience == 0 {
		return true
	}
	timer := time.NewTimer(q.Patience)
	defer timer.Stop()
	select {
	case <-c.ended:
		return true
	case <-c.ctx.Done():
		return true
	case <-timer.C:
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	left := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(other *call[W, R]) bool { return other == c })
	if len(q.waiting) == left {
		return true
	}
	q.start() // what it held up
	return false
}

func (q *Queue[W, R]) one(c *call[W, R]) (none R, err error) {
	results, err := q.Commit(c.ctx, []W{c.write})
	if err != nil {
		return none, err
	}
	return results[0], nil
}

// batch is calls that run together.
type batch[W, R any] struct {
	calls []*call[W, R]
	slow  bool
	timer *time.Timer
}

// enter returns a batch of c alone if it is to run at once, by its caller, or queues it.
func (q *Queue[W, R]) enter(c *call[W, R]) (*batch[W, R], error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.busy == nil {
		q.busy = map[string]bool{}
	}
	if len(q.waiting) == 0 && q.running < batches && q.free(c.keys, nil) && q.free(c.shared, nil) {
		return q.begin(c), nil
	}
	if len(q.waiting) >= queued {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *call[W, R]) bool { return other.ctx.Err() != nil })
	}
	if len(q.waiting) >= queued {
		return nil, ErrFull
	}
	q.waiting = append(q.waiting, c)
	q.start()
	return nil, nil
}

// start begins as many batches as may run.
func (q *Queue[W, R]) start() {
	for q.running < batches {
		calls := q.next()
		if len(calls) == 0 { // none waits, or only for keys: the batches that hold them go on
			return
		}
		b := q.begin(calls...)
		go func() { q.leave(b, q.commit(b.calls)...) }()
	}
}

func (q *Queue[W, R]) begin(calls ...*call[W, R]) *batch[W, R] {
	for _, c := range calls {
		mark(q.busy, c.keys)
		mark(q.busy, c.shared)
	}
	q.running++
	b := &batch[W, R]{calls: calls}
	b.timer = time.AfterFunc(slowAfter, func() {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		if b.calls != nil && q.slow < slowBatches {
			b.slow = true
			q.slow++
			q.running--
			q.start()
		}
	})
	return b
}

// leave ends a batch, and has the queue go on, first of all with calls that run again.
func (q *Queue[W, R]) leave(b *batch[W, R], again ...*call[W, R]) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	b.timer.Stop()
	for _, c := range b.calls {
		for _, key := range slices.Concat(c.keys, c.shared) {
			delete(q.busy, key)
		}
	}
	if b.calls = nil; b.slow {
		q.slow--
	} else {
		q.running--
	}
	q.waiting = append(again, q.waiting...)
	q.start()
}

// next takes the writes of the next batch: the first ones whose keys are free. One that
// stays keeps later ones with its keys waiting, too, so that none is overtaken for ever.
func (q *Queue[W, R]) next() []*call[W, R] {
	var calls []*call[W, R]
	kept, taken := map[string]bool{}, map[string]bool{}
	q.waiting = slices.DeleteFunc(q.waiting, func(c *call[W, R]) bool {
		switch {
		case c.ctx.Err() != nil:
			return true // its caller has gone
		case len(calls) == batchSize || len(calls) == 1 && calls[0].alone:
			return false
		case (len(calls) == 0 || !c.alone) && q.free(c.keys, kept) && !anyOf(c.keys, taken) && q.free(c.shared, kept):
			mark(taken, c.keys)
			calls = append(calls, c)
			return true
		}
		mark(kept, c.keys)
		mark(kept, c.shared)
		return false
	})
	return calls
}

func (q *Queue[W, R]) free(keys []string, kept map[string]bool) bool {
	return !anyOf(keys, q.busy) && !anyOf(keys, kept)
}

func anyOf(keys []string, marked map[string]bool) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return marked[key] })
}

func mark(marked map[string]bool, keys []string) {
	for _, key := range keys {
		marked[key] = true
	}
}

// commit runs a batch, in the trace of its first caller; those of the others link to it.
// It goes on when callers hang up, and returns the calls that are to run again.
func (q *Queue[W, R]) commit(calls []*call[W, R]) (again []*call[W, R]) {
	writes := make([]W, len(calls))
	for i, c := range calls {
		if writes[i] = c.write; i > 0 {
			trace.SpanFromContext(c.ctx).AddLink(trace.LinkFromContext(calls[0].ctx))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(calls[0].ctx), batchTimeout)
	defer cancel()
	results, err := q.Commit(ctx, writes)
	if err != nil && len(calls) > 1 && !postgres.Unavailable(err) {
		for _, c := range calls {
			c.alone = true
		}
		return calls
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.result = results[i]
		}
		close(c.ended)
	}
	return nil
}
