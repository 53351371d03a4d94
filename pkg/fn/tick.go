package fn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Report is a tick's answer.
type Report = lease.Report

// TickPath is where ticks and wakes come in; POST / takes them too, as the
// CloudEvents that schedulers and channels push. Neither body is ever believed.
const TickPath = "/tick"

// Tick registers the function's work. A tick or wake runs step again and again
// while it reports More, until the tick's budget is spent. One instance drains
// once at a time: a tick that meets another makes that one look again, so that
// what was committed before the tick is drained after it.
//
// step works on one batch. It may be cut short by ctx at any time, and errors end
// the tick with a 503 or 500; both leave work to the next tick.
func (e *Env) Tick(step func(context.Context) (Report, error)) {
	d := &drain{env: e, step: step, again: make(chan struct{}, 1)}
	e.Mux.HandleFunc("POST "+TickPath, d.serve)
	e.Mux.HandleFunc("POST /{$}", d.serve)
}

// SideBySide does one step of each source at the same time and reports them as one:
// there is more while one of them has more. An error of one does not stop the others.
func SideBySide[S any](ctx context.Context, sources []S, step func(context.Context, S) (Report, error)) (Report, error) {
	reports, failures := make([]Report, len(sources)), make([]error, len(sources))
	var group sync.WaitGroup
	for i, source := range sources {
		group.Go(func() {
			reports[i], failures[i] = safely(func() (Report, error) { return step(ctx, source) })
		})
	}
	group.Wait()
	var total Report
	for _, report := range reports {
		total.Beside(report)
	}
	return total, errors.Join(failures...)
}

type drain struct {
	env   *Env
	step  func(context.Context) (Report, error)
	mutex sync.Mutex
	again chan struct{} // holds a token when a tick came during a drain
}

func (d *drain) serve(w http.ResponseWriter, r *http.Request) {
	if !d.mutex.TryLock() {
		d.lookAgain()
		// The running drain may have looked at its token just before we left ours.
		if !d.mutex.TryLock() {
			d.answer(w, Report{More: true})
			return
		}
	}
	d.env.ticks.Add(1)
	defer d.env.ticks.Done()
	// Whoever woke us does not wait for the end; the drain does not end with them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), d.env.Settings.TickBudget)
	defer cancel()
	stop := context.AfterFunc(d.env.life, cancel)
	defer stop()

	started := time.Now()
	var report Report
	var err error
	for {
		err = d.run(ctx, &report)
		d.mutex.Unlock()
		// A token that came after run's last look would wait for the next tick.
		if err != nil || ctx.Err() != nil || len(d.again) == 0 || !d.mutex.TryLock() {
			break
		}
	}
	log := d.env.Logger()
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "tick failed", "error", err.Error())
		problem.Write(w, err)
		return
	}
	if report.Claimed > 0 {
		log.DebugContext(ctx, "tick", "claimed", report.Claimed, "done", report.Done, "retried", report.Retried,
			"dead", report.Dead, "lost_lease", report.LostLease, "ms", time.Since(started).Milliseconds())
	}
	d.answer(w, report)
}

// run drains until nothing is left and nobody asked to look again, and goes on
// polling for the linger time.
func (d *drain) run(ctx context.Context, total *Report) error {
	lingerUntil := time.Now().Add(d.env.Settings.TickLinger)
	for {
		for {
			report, err := safely(func() (Report, error) { return d.step(ctx) })
			total.Add(report)
			if err != nil {
				return err
			}
			if !report.More {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		poll := time.Until(lingerUntil)
		if poll > d.env.Settings.TickPoll {
			poll = d.env.Settings.TickPoll
		}
		if !d.asked(ctx, poll) {
			if time.Now().Before(lingerUntil) && ctx.Err() == nil {
				continue
			}
			return nil
		}
	}
}

// safely turns a panic into an error: the next tick must find the drain free, and
// the process alive.
func safely(step func() (Report, error)) (report Report, err error) {
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
	default: // somebody asked already
	}
}

func (d *drain) answer(w http.ResponseWriter, report Report) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report) // whoever woke us may be gone
}
