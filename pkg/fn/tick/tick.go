// Package tick drives functions that work: a cron or a function that has committed
// something sends POST /tick, and the function drains its sources.
package tick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Path is where ticks and wakes come in; POST / takes them too, as the CloudEvents that
// schedulers and channels push. Neither body is ever believed.
const Path = "/tick"

// Source is one place where a function finds work: an outbox, a consumer, a queue.
type Source struct {
	Name string // for the log
	// Step works on one batch and reports whether there is more. It may be cut short by
	// its context at any time; the next tick finds what it left.
	Step func(context.Context) (lease.Report, error)
	// AtOnce, when above 1, is how many steps run at once after one that reported More, so
	// that one claims while another publishes. Step must allow it.
	AtOnce int
}

// Config is how ticks of one function run.
type Config struct {
	// Budget bounds a tick. A tick that found everything done polls for Linger more,
	// every Poll.
	Budget, Linger, Poll time.Duration
	Log                  *slog.Logger
	Function             string // for the metrics
	Metrics              *Metrics
	// Life ends when the process shuts down; ticks in progress then end.
	Life    context.Context
	Running *sync.WaitGroup // the ticks in progress
}

// Handler answers ticks and wakes of a function, with a lease.Report as JSON. A tick
// drains all sources side by side: it runs the step of each again and again while that
// reports More, until the budget is spent. No source waits for another. One that fails
// is left alone until the next tick while the others continue; its error, logged, makes
// the answer a 503 or 500.
//
// One instance drains a source once at a time: a tick that meets another makes that one
// look again, so that what was committed before the tick is drained after it.
func Handler(c Config, sources ...Source) http.Handler {
	t := &ticker{config: c}
	for _, source := range sources {
		t.drains = append(t.drains, &drain{config: c, source: source, again: make(chan struct{}, 1)})
	}
	return t
}

type ticker struct {
	config Config
	drains []*drain
}

func (t *ticker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.config.Running.Add(1)
	defer t.config.Running.Done()
	// The caller does not wait for the end, and the drain does not end with the caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), t.config.Budget)
	defer cancel()
	stop := context.AfterFunc(t.config.Life, cancel)
	defer stop()

	started := time.Now()
	reports, failures := make([]lease.Report, len(t.drains)), make([]error, len(t.drains))
	var group sync.WaitGroup
	for i, d := range t.drains {
		group.Go(func() { reports[i], failures[i] = d.drain(ctx) })
	}
	group.Wait()
	var total lease.Report
	for _, report := range reports {
		total.Merge(report)
	}
	if total.Claimed > 0 {
		t.config.Log.DebugContext(ctx, "tick", "claimed", total.Claimed, "done", total.Done, "retried", total.Retried,
			"dead", total.Dead, "lost_lease", total.LostLease, "ms", time.Since(started).Milliseconds())
	}
	cause := causeOf(r)
	for i, d := range t.drains {
		t.config.Metrics.worked(ctx, t.config.Function, d.source.Name, cause, reports[i])
	}
	err := errors.Join(failures...)
	t.config.Metrics.ticked(ctx, t.config.Function, cause, time.Since(started), err)
	if err != nil {
		problem.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(total) // the caller may be gone
}

// drain is the work on one source.
type drain struct {
	config Config
	source Source
	mutex  sync.Mutex
	again  chan struct{} // holds a token when a tick came during a drain
}

// drain works until nothing is left. One that meets another returns at once.
func (d *drain) drain(ctx context.Context) (total lease.Report, err error) {
	if !d.mutex.TryLock() {
		d.lookAgain()
		// The running drain may have looked at its token just before we left ours.
		if !d.mutex.TryLock() {
			return lease.Report{More: true}, nil
		}
	}
	for {
		err = d.run(ctx, &total)
		d.mutex.Unlock()
		// A token that came after run's last look would wait for the next tick.
		if err != nil || ctx.Err() != nil || len(d.again) == 0 || !d.mutex.TryLock() {
			break
		}
	}
	if err != nil {
		d.config.Log.WarnContext(ctx, "tick failed", "source", d.source.Name, "error", err.Error())
	}
	return total, err
}

// run drains until nothing is left and no tick asked to look again, and then polls for the
// rest of the linger time.
func (d *drain) run(ctx context.Context, total *lease.Report) error {
	lingerUntil := time.Now().Add(d.config.Linger)
	for {
		if err := d.burst(ctx, total); err != nil || total.More {
			return err
		}
		poll := time.Until(lingerUntil)
		if poll > d.config.Poll {
			poll = d.config.Poll
		}
		if !d.asked(ctx, poll) {
			if time.Now().Before(lingerUntil) && ctx.Err() == nil {
				continue
			}
			return nil
		}
	}
}

// stepPatience is how long a step may have run when the budget ends and cuts it off: a
// busy source always has a step under way then. One that ran for longer, or for most of
// the budget, hangs.
const stepPatience = time.Second

// burst runs steps until none reports more, one fails, or the time is over: the first
// alone, since one is enough for most ticks, and then AtOnce side by side.
func (d *drain) burst(ctx context.Context, total *lease.Report) error {
	report, err := d.step(ctx)
	total.Add(report)
	if err != nil || !report.More || ctx.Err() != nil {
		return err
	}
	atOnce := max(d.source.AtOnce, 1)
	reports, failures := make([]lease.Report, atOnce), make([]error, atOnce)
	var group sync.WaitGroup
	var failed atomic.Bool
	for i := range reports {
		reports[i].More = true
		group.Go(func() {
			for reports[i].More && !failed.Load() && ctx.Err() == nil {
				var report lease.Report
				report, failures[i] = d.step(ctx)
				reports[i].Add(report)
				if failures[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	total.More = false
	for _, report := range reports {
		total.Merge(report)
	}
	return errors.Join(failures...)
}

// step runs the source's. An error that only means that the process shuts down is none;
// nor is one that means that the budget ended while the source was busy.
func (d *drain) step(ctx context.Context) (lease.Report, error) {
	started := time.Now()
	report, err := safely(func() (lease.Report, error) { return d.source.Step(ctx) })
	switch {
	case err == nil || ctx.Err() == nil:
		return report, err
	case d.config.Life.Err() != nil:
		return report, nil
	}
	report.More = true
	took := time.Since(started)
	if took < min(stepPatience, d.config.Budget/2) {
		return report, nil
	}
	return report, fault.Unreachable("What this function works on",
		fmt.Errorf("a step had run for %s when TICK_BUDGET ended, and was cut off: %w", took.Round(time.Millisecond), err))
}

// safely turns a panic into an error: the next tick must find the drain free, and
// the process alive.
func safely(step func() (lease.Report, error)) (report lease.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return step()
}

// asked waits up to wait for a tick that asks to look again.
func (d *drain) asked(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		select {
		case <-d.again:
			return true
		default:
			return false
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.again:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (d *drain) lookAgain() {
	select {
	case d.again <- struct{}{}:
	default: // another tick has asked already
	}
}
