// Package groupcommit lets writes that wait for Postgres at the same moment share a
// statement and a commit. Whatever queued while the last batch ran is the next batch: there
// is no timer, so a write that comes alone waits for nobody and runs in its caller's
// goroutine.
//
// A batch is all or nothing, and a write is not: those of a batch that failed run again,
// each alone and at the same time, so that one that cannot succeed fails alone and one that
// waits for a lock keeps no other waiting.
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
	// batchSize bounds the writes of a batch.
	batchSize = 32
	// queued bounds the writes that wait: about the tenth of a second that a caller may
	// wait for nothing.
	queued = 1024
	// batchTimeout bounds a batch; its callers may have gone.
	batchTimeout = 10 * time.Second
)

// ErrFull is for writes that find the queue full. They have not happened.
var ErrFull = &fault.Error{
	Kind: fault.Unavailable, Code: "busy", RetryAfter: time.Second,
	Detail: "Too many changes wait for the database; send the same request again.",
}

// Queue batches writes W, each with a result R.
type Queue[W, R any] struct {
	// Commit runs writes in one transaction, and returns their results in the same order.
	// A single one may be retried in any way; several must end soon, even if others hold
	// locks that they need.
	Commit func(context.Context, []W) ([]R, error)
	// Keys name what a write changes. Writes with a key in common never run at once; they
	// run in the order in which they came.
	Keys func(W) []string

	mutex   sync.Mutex
	waiting []*call[W, R]
	running int             // batches
	busy    map[string]bool // keys of running batches
}

// call is a write that waits.
type call[W, R any] struct {
	ctx    context.Context
	write  W
	keys   []string
	result R
	err    error
	alone  bool // its batch failed
	ended  chan struct{}
}

// Do runs one write, together with others that wait. Its error is that of Commit for this
// write alone, ErrFull, or ctx's: then the write may happen all the same.
func (q *Queue[W, R]) Do(ctx context.Context, write W) (none R, err error) {
	c := &call[W, R]{ctx: ctx, write: write, keys: q.Keys(write), ended: make(chan struct{})}
	run, err := q.enter(c)
	if err != nil {
		return none, err
	}
	if run {
		defer q.leave(c)
		return q.one(c)
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return none, postgres.Wrap("wait for others", ctx.Err())
	}
	if c.alone {
		return q.one(c)
	}
	return c.result, c.err
}

func (q *Queue[W, R]) one(c *call[W, R]) (none R, err error) {
	results, err := q.Commit(c.ctx, []W{c.write})
	if err != nil {
		return none, err
	}
	return results[0], nil
}

// enter reports whether c is to run at once, by its caller, or queues it.
func (q *Queue[W, R]) enter(c *call[W, R]) (run bool, err error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.busy == nil {
		q.busy = map[string]bool{}
	}
	if len(q.waiting) == 0 && q.running < batches && q.free(c, nil) {
		q.hold(c)
		q.running++
		return true, nil
	}
	if len(q.waiting) == queued {
		return false, ErrFull
	}
	q.waiting = append(q.waiting, c)
	if q.running < batches {
		q.running++
		go q.run()
	}
	return false, nil
}

// leave ends a write that its caller ran, and has the queue go on.
func (q *Queue[W, R]) leave(c *call[W, R]) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.release(c)
	if len(q.waiting) > 0 {
		go q.run()
		return
	}
	q.running--
}

// run runs batches until none can begin: the keys of those that are left are busy, and
// whoever frees them goes on.
func (q *Queue[W, R]) run() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for {
		batch := q.next()
		if len(batch) == 0 {
			q.running--
			return
		}
		q.mutex.Unlock()
		q.commit(batch)
		q.mutex.Lock()
		q.release(batch...)
	}
}

// next takes the writes of the next batch: the first ones whose keys are free. One that
// stays keeps later ones with its keys waiting, too, so that none is overtaken for ever.
func (q *Queue[W, R]) next() []*call[W, R] {
	var batch []*call[W, R]
	kept := map[string]bool{}
	q.waiting = slices.DeleteFunc(q.waiting, func(c *call[W, R]) bool {
		switch {
		case c.ctx.Err() != nil:
			return true // its caller has gone
		case len(batch) < batchSize && q.free(c, kept):
			q.hold(c)
			batch = append(batch, c)
			return true
		case len(batch) < batchSize:
			for _, key := range c.keys {
				kept[key] = true
			}
		}
		return false
	})
	return batch
}

func (q *Queue[W, R]) free(c *call[W, R], kept map[string]bool) bool {
	return !slices.ContainsFunc(c.keys, func(key string) bool { return q.busy[key] || kept[key] })
}

func (q *Queue[W, R]) hold(c *call[W, R]) {
	for _, key := range c.keys {
		q.busy[key] = true
	}
}

func (q *Queue[W, R]) release(calls ...*call[W, R]) {
	for _, c := range calls {
		for _, key := range c.keys {
			delete(q.busy, key)
		}
	}
}

// commit runs a batch, in the trace of its first caller; those of the others link to it.
// It goes on when callers hang up.
func (q *Queue[W, R]) commit(batch []*call[W, R]) {
	writes := make([]W, len(batch))
	for i, c := range batch {
		writes[i] = c.write
		trace.SpanFromContext(c.ctx).AddLink(trace.Link{SpanContext: trace.SpanContextFromContext(batch[0].ctx)})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), batchTimeout)
	defer cancel()
	results, err := q.Commit(ctx, writes)
	for i, c := range batch {
		switch {
		case err == nil:
			c.result = results[i]
		case len(batch) > 1 && !postgres.Unavailable(err):
			c.alone = true
		default:
			c.err = err
		}
		close(c.ended)
	}
}
