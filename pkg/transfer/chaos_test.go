package transfer_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// faultEvery is after how many answers, on average, a backend is killed, and after how
// many a connection is cut.
const faultEvery = 70

// chaos runs beside the callers, and counts what it did, until stop is called.
type chaos struct {
	*arena
	wire                                  *wire
	group                                 sync.WaitGroup
	killed, cut, orphans, written, looked int
	longest                               time.Duration // to read a snapshot
}

// begin starts all parts of chaos: an impatient watchdog, the ledger, the killer of their
// and the callers' backends, the cutter of the callers' connections, and the reader of
// snapshots.
func (a *arena) begin(ctx context.Context, w *wire) (c *chaos, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c = &chaos{arena: a, wire: w}
	for _, part := range []func(context.Context){c.watchdog, c.ledger, c.killer, c.cutter, c.reader} {
		c.group.Go(func() { part(ctx) })
	}
	return c, func() { cancel(); c.group.Wait() }
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// around returns a random duration, d on average.
func around(d time.Duration) time.Duration { return rand.N(2 * d) }

// await waits for about n more answers, and reports whether ctx is still alive. So a slow
// machine gets as many faults for its answers as a fast one.
func (c *chaos) await(ctx context.Context, n int64) bool {
	for goal := c.answers.Load() + rand.N(2*n); c.answers.Load() < goal; {
		if !pause(ctx, 2*time.Millisecond) {
			return false
		}
	}
	return pause(ctx, 2*time.Millisecond)
}

// may fails the test on an error that killed backends do not explain.
func (c *chaos) may(ctx context.Context, who string, err error) {
	if err != nil && ctx.Err() == nil && fault.Of(err) != fault.Unavailable {
		c.t.Errorf("%s: %v", who, err)
	}
}

// watchdog ends requests that are a few milliseconds old, often just before their TX1.
func (c *chaos) watchdog(ctx context.Context) {
	pool := victims(c.t, c.url, 1, "cache_statement")
	store := transfer.NewStore(pool)
	for pause(ctx, around(4*time.Millisecond)) {
		report, _, err := store.EndOrphans(ctx, around(30*time.Millisecond))
		c.may(ctx, "watchdog", err)
		c.orphans += report.Dead
	}
}

// ledger writes entries from two goroutines at once, as two processes would.
func (c *chaos) ledger(ctx context.Context) {
	pool := victims(c.t, c.url, 2, "cache_statement")
	store := transfer.NewStore(pool)
	other := make(chan int)
	write := func() (n int) {
		for pause(ctx, around(10*time.Millisecond)) {
			report, err := store.WriteLedger(ctx)
			c.may(ctx, "ledger", err)
			n += report.Done
		}
		return n
	}
	go func() { other <- write() }()
	c.written = write() + <-other
}

// killer ends backends, half of them in the middle of TX1.
func (c *chaos) killer(ctx context.Context) {
	for c.await(ctx, faultEvery) {
		tag, err := c.pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1
			ORDER BY $2 AND state = 'active' AND query LIKE '%move_money%' DESC, random() LIMIT 1) x`, victim, rand.N(2) == 0)
		c.may(ctx, "killer", err)
		c.killed += int(tag.RowsAffected())
	}
}

// cutter breaks connections between the callers' store and Postgres: a random one, or that
// of the next TX1, before TX1 reaches Postgres or after its commit.
func (c *chaos) cutter(ctx context.Context) {
	for ; c.await(ctx, faultEvery); c.cut++ {
		switch rand.N(3) {
		case 0:
			c.wire.cutOne()
		case 1:
			c.wire.plan(plan{text: tx1, before: no})
		case 2:
			c.wire.plan(plan{text: tx1, after: no})
		}
	}
}

// reader checks all promises in one snapshot after another, for a fifth of the time.
func (c *chaos) reader(ctx context.Context) {
	for took := time.Millisecond; pause(ctx, 4*took); c.looked++ {
		begun := time.Now()
		list, err := broken(ctx, c.pool, inSnapshot...)
		if err != nil && ctx.Err() == nil {
			c.t.Error(err)
		}
		for _, problem := range list {
			c.t.Errorf("a snapshot: %s", problem)
		}
		took = time.Since(begun)
		c.longest = max(c.longest, took)
	}
}
