package transfer_test

import (
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	// moveTimeout is the timeout of TX1, stepTimeout that of asking how it ended, and
	// lockTimeout that of each lock in TX1.
	moveTimeout = 5 * time.Second
	stepTimeout = 1500 * time.Millisecond
	lockTimeout = 4 * time.Second
	// late is the delay that a busy machine may add.
	late = 3 * time.Second
)

// race is a TX1 that stops somewhere while the watchdog ends every orphan it finds.
type race struct {
	*arena
	wire     *wire
	sent     wish
	from, to int64
	release  chan struct{} // closed to let a TX1 continue that stopped at the wire
	stopped  chan struct{} // closed when TX1 has stopped at the wire
	answered chan error
}

func newRace(t *testing.T) *race {
	t.Helper()
	r := &race{wire: newWire(t), release: make(chan struct{}), stopped: make(chan struct{}), answered: make(chan error, 1)}
	r.arena = newArena(t, 4, "cache_statement", r.wire.through)
	r.from, r.to = r.open("u_a", "10"), r.open("u_b", "0")
	r.sent = r.wish("u_a", r.from, r.to, "1")
	return r
}

// stop stops TX1 at the wire, as before or after of a plan.
func (r *race) stop() bool {
	close(r.stopped)
	<-r.release
	return true
}

// send sends the transfer; its error goes to answered.
func (r *race) send() {
	go func() { _, err := r.ask(r.t.Context(), r.Store, r.sent); r.answered <- err }()
}

// untilLocked waits until TX1 waits for a lock.
func (r *race) untilLocked() {
	r.t.Helper()
	kit.Eventually(r.t, "TX1 waits", func() bool { return r.waiting() == "1" })
}

// endOrphans runs the watchdog and returns how many keys it ended.
func (r *race) endOrphans() int {
	r.t.Helper()
	report, _, err := r.calm.EndOrphans(r.t.Context(), 0)
	if err != nil {
		r.t.Error(err)
	}
	return report.Dead
}

// askAgain sends the same request from another caller, past the wire and its faults.
func (r *race) askAgain() transfer.Answer {
	r.t.Helper()
	answer, err := r.ask(r.t.Context(), r.calm, r.sent)
	if err != nil {
		r.t.Error(err)
	}
	return answer
}

type raceCase struct {
	want  string        // how it must end
	bound time.Duration // for TX1's caller
	run   func(*race)
}

// races names the places where TX1 stops.
var races = map[string]raceCase{
	"before it reaches Postgres": {transfer.TimedOut, late, func(r *race) {
		r.wire.plan(plan{text: tx1, before: r.stop})
		r.send()
		<-r.stopped
		r.endOrphans()
		r.askAgain() // FAILED, and so for every caller from now on
		close(r.release)
	}},
	"before it reaches Postgres, for longer than it may take": {transfer.RolledBack, moveTimeout + late, func(r *race) {
		ran := make(chan struct{})
		r.wire.plan(plan{text: tx1, before: r.stop, after: func() bool { close(ran); return false }})
		r.send()
		<-r.stopped
		err := <-r.answered // FAILED
		if n := r.endOrphans(); n != 0 {
			r.t.Errorf("the watchdog ended %d keys, want none", n)
		}
		r.askAgain()
		close(r.release) // Postgres gets TX1 now, after its caller has left
		<-ran
		r.answered <- err
	}},
	"at the lock of its key": {transfer.Succeeded, late, func(r *race) {
		r.wire.plan(plan{text: tx1, before: r.stop})
		r.send()
		<-r.stopped
		free := r.hold(`SELECT FROM integration.idempotency_key WHERE idempotency_key = $1 FOR UPDATE`, r.sent.key)
		close(r.release)
		r.untilLocked()
		r.endOrphans()
		r.askAgain()
		free()
	}},
	"at the lock of an account, with that of its key": {transfer.Succeeded, late, func(r *race) {
		free := r.hold(`SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, r.to)
		r.send()
		r.untilLocked()
		for range 10 {
			r.endOrphans()
			r.askAgain()
		}
		free()
	}},
	"at the lock of an account that is not freed": {transfer.RolledBack, hurried + late, func(r *race) {
		r.hurryLocks()
		free := r.hold(`SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, r.from)
		r.send()
		r.untilLocked()
		r.endOrphans()
		err := <-r.answered
		r.endOrphans()
		r.askAgain()
		free()
		r.answered <- err
	}},
	"at the locks of both accounts, together for too long": {transfer.RolledBack, moveTimeout + stepTimeout + late, func(r *race) {
		first := r.hold(`SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, r.from)
		second := r.hold(`SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, r.to)
		r.send()
		r.untilLocked()
		pause(r.t.Context(), lockTimeout-time.Second)
		first()
		err := <-r.answered
		r.drain() // Postgres was asked to cancel it
		r.askAgain()
		second()
		r.answered <- err
	}},
	"committed, before the answer": {transfer.Succeeded, late, func(r *race) {
		r.wire.plan(plan{text: tx1, after: r.stop})
		r.send()
		<-r.stopped
		r.endOrphans()
		r.askAgain()
		close(r.release)
	}},
	"committed, and the answer does not come": {transfer.Succeeded, moveTimeout + late, func(r *race) {
		r.wire.plan(plan{text: tx1, after: r.stop})
		r.t.Cleanup(func() { close(r.release) })
		r.send()
		<-r.stopped
		r.endOrphans()
		r.askAgain()
	}},
}

// Wherever TX1 stops, it and the watchdog settle on one answer, which every caller gets,
// and TX1's caller waits for a bounded time.
func TestWatchdogRaces(t *testing.T) {
	t.Parallel()
	together(t, races, func(t *testing.T, c raceCase) {
		r := newRace(t)
		begun := time.Now()
		c.run(r)
		err := <-r.answered
		took := time.Since(begun)
		if took > c.bound {
			t.Errorf("TX1's caller waited for %s, want %s at most", took, c.bound)
		}
		r.drain()
		if answer := r.askAgain(); word(answer) != c.want {
			t.Errorf("TX1 ended as %s, want %s", answer.Body, c.want)
		}
		r.mustBeRight()
		t.Logf("%v in %s: %v, %v", c.want, took.Round(time.Millisecond), r.count, err)
	})
}

// together runs subtests that mostly wait all at once, however small -parallel is.
func together[Case any](t *testing.T, cases map[string]Case, run func(*testing.T, Case)) {
	var group sync.WaitGroup
	for name, c := range cases {
		group.Go(func() { t.Run(name, func(t *testing.T) { run(t, c) }) })
	}
	group.Wait()
}
