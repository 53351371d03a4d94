package fn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
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
	return tickedAll(t, []step{s}, environment...)
}

// tickedAll returns a function with a source for each step, called 0, 1, …
func tickedAll(t testing.TB, steps []step, environment ...string) (*fn.Runtime, http.Handler) {
	t.Helper()
	var sources []fn.Source
	for i, s := range steps {
		sources = append(sources, fn.Source{Name: strconv.Itoa(i), Step: s})
	}
	runtime, local := setup(t, []fn.Function{{Name: "worker", New: func(e *fn.Env) error { e.Tick(sources...); return nil }}}, environment...)
	return runtime, local["worker"]
}

// logged is what a process wrote to its log.
type logged struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func logOf(runtime *fn.Runtime) *logged {
	l := &logged{}
	runtime.Log = slog.New(slog.NewTextHandler(l, nil))
	return l
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

// A source that fails, or hangs, holds up none of the others: neither in the same tick
// nor in those that come meanwhile.
func TestSourcesStandAlone(t *testing.T) {
	t.Parallel()
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	drained := make(chan int64, 1)
	var due, done atomic.Int64
	due.Store(50)
	_, worker := tickedAll(t, []step{
		func(context.Context) (fn.Report, error) { return fn.Report{}, errors.New("secret") },
		func(context.Context) (fn.Report, error) {
			entered <- struct{}{}
			<-release
			return fn.Report{}, nil
		},
		func(context.Context) (fn.Report, error) {
			if due.Add(-1) < 0 {
				due.Store(0)
				select {
				case drained <- done.Load():
				default:
				}
				return fn.Report{}, nil
			}
			done.Add(1)
			return fn.Report{Claimed: 1, Done: 1, More: true}, nil
		},
	})
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- do(worker, http.MethodPost, fn.TickPath, "") }()
	soon(t, "the source that hangs is asked", entered)
	if n := soon(t, "the other source is drained", drained); n != 50 {
		t.Errorf("beside a source that fails and one that hangs %d of 50 batches were done in one tick", n)
	}
	due.Store(7)
	do(worker, http.MethodPost, fn.TickPath, "")
	if n := soon(t, "the other source is drained again", drained); n != 57 {
		t.Errorf("a tick that met a source that hangs did %d of 7 batches of another", n-50)
	}
	close(release)
	if w := soon(t, "the first tick ends", first); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a tick with a source that failed was answered %d %s, want 500", w.Code, w.Body)
	}
}

// A store that hangs must not look idle: the tick says so and the log does.
func TestStepThatHangs(t *testing.T) {
	t.Parallel()
	runtime, worker := ticked(t, func(ctx context.Context) (fn.Report, error) {
		<-ctx.Done()
		return fn.Report{}, ctx.Err()
	}, "TICK_BUDGET=100ms")
	log := logOf(runtime)
	w := do(worker, http.MethodPost, fn.TickPath, "")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("a step that hung for the whole budget was answered %d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "a step had run for") || !strings.Contains(log.String(), "source=0") {
		t.Errorf("the log does not say which source hung: %q", log)
	}
}

// A busy source always has a step under way when the budget ends: no fault, and more is left.
func TestBudgetCutsABusyStep(t *testing.T) {
	t.Parallel()
	steps := 0
	runtime, worker := ticked(t, func(ctx context.Context) (fn.Report, error) {
		steps++
		select {
		case <-ctx.Done():
			return fn.Report{}, ctx.Err()
		case <-time.After(5 * time.Millisecond):
			return fn.Report{Claimed: 1, Done: 1, More: true}, nil
		}
	}, "TICK_BUDGET=1s")
	log := logOf(runtime)
	if got := report(t, do(worker, http.MethodPost, fn.TickPath, "")); !got.More || got.Done == 0 {
		t.Errorf("after %d steps: %+v, want more", steps, got)
	}
	if log.String() != "" {
		t.Errorf("the end of the budget is logged as a fault: %s", log)
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
	log := logOf(runtime)
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- do(worker, http.MethodPost, fn.TickPath, "") }()
	soon(t, "the step works", working)
	runtime.Close()
	if !ended.Load() {
		t.Error("Close did not wait")
	}
	if w := soon(t, "the tick's answer", answer); w.Code != http.StatusOK || log.String() != "" {
		t.Errorf("a shutdown is told as a fault: %d %s; log %q", w.Code, w.Body, log)
	}
}
