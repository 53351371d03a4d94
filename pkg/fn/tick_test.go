package fn_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

type step = func(context.Context) (fn.Report, error)

func ticked(t testing.TB, s step, environment ...string) (*fn.Runtime, http.Handler) {
	t.Helper()
	runtime, local := setup(t, []fn.Function{{Name: "worker", New: func(e *fn.Env) error { e.Tick(s); return nil }}}, environment...)
	return runtime, local["worker"]
}

func report(t testing.TB, w *httptest.ResponseRecorder) (r fn.Report) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A tick goes on while there is more, and adds up what happened.
func TestTickDrains(t *testing.T) {
	t.Parallel()
	steps := 0
	_, worker := ticked(t, func(context.Context) (fn.Report, error) {
		steps++
		return fn.Report{Claimed: 5, Done: 2, Retried: 1, Dead: 1, LostLease: 1, More: steps < 3}, nil
	})
	want := fn.Report{Claimed: 15, Done: 6, Retried: 3, Dead: 3, LostLease: 3}
	if got := report(t, do(worker, http.MethodPost, fn.TickPath, "")); got != want || steps != 3 {
		t.Errorf("%d steps: %+v", steps, got)
	}
}

// One instance drains once at a time. A tick that meets another is answered at
// once, and what it came for is looked at after it came.
func TestTicksMeet(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	var running, steps atomic.Int64
	_, worker := ticked(t, func(context.Context) (fn.Report, error) {
		if running.Add(1) > 1 {
			t.Error("two steps at once")
		}
		defer running.Add(-1)
		if steps.Add(1) == 1 {
			close(entered)
			<-leave
		}
		return fn.Report{Done: 1}, nil
	})
	first := make(chan fn.Report)
	go func() { first <- report(t, do(worker, http.MethodPost, fn.TickPath, "")) }()
	soon(t, "the first tick works", entered)
	for range 10 {
		if got := report(t, do(worker, http.MethodPost, "/", "")); got != (fn.Report{More: true}) {
			t.Errorf("the second one: %+v", got)
		}
	}
	close(leave)
	if got := soon(t, "the first tick's answer", first); got.Done != 2 || steps.Load() != 2 {
		t.Errorf("ten more ticks made %d more steps: %+v", steps.Load()-1, got)
	}
}

// Whatever was committed before a tick is drained soon after it, however ticks meet.
func TestNoTickIsLost(t *testing.T) {
	t.Parallel()
	var due, done atomic.Int64
	_, worker := ticked(t, func(context.Context) (fn.Report, error) {
		n := due.Swap(0)
		done.Add(n)
		return fn.Report{Done: int(n)}, nil
	})
	const rounds, clients = 200, 8
	for range rounds {
		before := done.Load()
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				due.Add(1)
				do(worker, http.MethodPost, fn.TickPath, "")
			})
		}
		group.Wait()
		// All ticks were answered: nobody works any more, and nothing may be left.
		if n := done.Load() - before; n != clients {
			t.Fatalf("%d of %d were done when all ticks had ended", n, clients)
		}
	}
}

// A failure ends the tick, hides its cause, and the next tick works.
func TestTickFails(t *testing.T) {
	t.Parallel()
	var result error
	_, worker := ticked(t, func(context.Context) (fn.Report, error) { return fn.Report{}, result })
	for status, err := range map[int]error{500: errors.New("secret"), 503: fault.Unreachable("The database", errors.New("secret")), 200: nil} {
		result = err
		w := do(worker, http.MethodPost, fn.TickPath, "")
		if w.Code != status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
		if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
			t.Error("Retry-After is missing")
		}
	}
}

// A payload that makes a step panic must not stop the function for good.
func TestTickPanics(t *testing.T) {
	t.Parallel()
	var steps atomic.Int64
	_, worker := ticked(t, func(context.Context) (fn.Report, error) {
		if steps.Add(1) == 1 {
			panic("secret")
		}
		return fn.Report{Done: 1}, nil
	})
	if w := do(worker, http.MethodPost, fn.TickPath, ""); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := report(t, do(worker, http.MethodPost, fn.TickPath, "")); got.Done != 1 {
		t.Errorf("the tick after a panic does nothing: %+v", got)
	}
}

// Whoever woke us may leave: the work goes on.
func TestTickOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	gone, finished := make(chan struct{}), make(chan error, 1)
	_, worker := ticked(t, func(ctx context.Context) (fn.Report, error) {
		<-gone
		finished <- ctx.Err()
		return fn.Report{}, nil
	})
	ctx, leave := context.WithCancel(context.Background())
	go worker.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, fn.TickPath, nil).WithContext(ctx))
	leave()
	close(gone)
	if err := soon(t, "the step ends", finished); err != nil {
		t.Errorf("its context ended with the caller: %v", err)
	}
}

// The budget ends a drain that has no end, and says that there is more.
func TestTickBudget(t *testing.T) {
	t.Parallel()
	_, worker := ticked(t, func(context.Context) (fn.Report, error) {
		time.Sleep(time.Millisecond)
		return fn.Report{Done: 1, More: true}, nil
	}, "TICK_BUDGET=100ms")
	started := time.Now()
	if got := report(t, do(worker, http.MethodPost, fn.TickPath, "")); !got.More || got.Done == 0 {
		t.Errorf("%+v", got)
	}
	if took := time.Since(started); took < 90*time.Millisecond || took > 5*time.Second {
		t.Errorf("a budget of 100ms took %s", took)
	}
}

// Where cron comes by the minute, a tick goes on polling, so that what is due in
// between does not wait.
func TestTickLingers(t *testing.T) {
	t.Parallel()
	var steps atomic.Int64
	_, worker := ticked(t, func(context.Context) (fn.Report, error) {
		n := int(steps.Add(1))
		return fn.Report{Claimed: n % 2, Done: n % 2}, nil
	}, "TICK_LINGER=200ms", "TICK_POLL=10ms")
	started := time.Now()
	got := report(t, do(worker, http.MethodPost, fn.TickPath, ""))
	if took := time.Since(started); took < 190*time.Millisecond {
		t.Errorf("it lingered for %s", took)
	}
	if steps.Load() < 3 || got.Done < 2 {
		t.Errorf("%d polls, %+v", steps.Load(), got)
	}
}

// Shutting down ends a tick, and waits for it.
func TestCloseEndsTicks(t *testing.T) {
	t.Parallel()
	working, ended := make(chan struct{}, 1), atomic.Bool{}
	runtime, worker := ticked(t, func(ctx context.Context) (fn.Report, error) {
		working <- struct{}{}
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond)
		ended.Store(true)
		return fn.Report{}, ctx.Err()
	})
	go do(worker, http.MethodPost, fn.TickPath, "")
	soon(t, "the step works", working)
	runtime.Close()
	if !ended.Load() {
		t.Error("Close did not wait")
	}
}
