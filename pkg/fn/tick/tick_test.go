package tick_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

type step = func(context.Context) (lease.Report, error)

// worker is a function with a source for each step, called 0, 1, …
type worker struct {
	http.Handler
	log  *logged
	end  context.CancelFunc // ends its process's life
	busy sync.WaitGroup
}

func ticked(t testing.TB, c tick.Config, steps ...step) *worker {
	t.Helper()
	var sources []tick.Source
	for i, s := range steps {
		sources = append(sources, tick.Source{Name: strconv.Itoa(i), Step: s})
	}
	return tickedSources(t, c, sources...)
}

func tickedSources(t testing.TB, c tick.Config, sources ...tick.Source) *worker {
	t.Helper()
	w := &worker{log: &logged{}}
	if c.Budget == 0 {
		c.Budget = time.Minute
	}
	c.Life, w.end = context.WithCancel(context.Background())
	t.Cleanup(w.end)
	c.Log, c.Running = slog.New(slog.NewTextHandler(w.log, nil)), &w.busy
	w.Handler = tick.Handler(c, sources...)
	return w
}

func do(handler http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tick.Path, nil))
	return w
}

// soon waits for something to happen.
func soon[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
	return v
}

// logged holds what a process wrote to its log.
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

func report(t testing.TB, w *httptest.ResponseRecorder) (r lease.Report) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("the tick was answered %d %s, want 200", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A tick runs steps while there is more, and adds up their reports.
func TestTickDrains(t *testing.T) {
	t.Parallel()
	steps := 0
	worker := ticked(t, tick.Config{}, func(context.Context) (lease.Report, error) {
		steps++
		return lease.Report{Claimed: 5, Done: 2, Retried: 1, Dead: 1, LostLease: 1, More: steps < 3}, nil
	})
	want := lease.Report{Claimed: 15, Done: 6, Retried: 3, Dead: 3, LostLease: 3}
	if got := report(t, do(worker)); got != want || steps != 3 {
		t.Errorf("%d steps reported %+v, want 3 and %+v", steps, got, want)
	}
}

// An instance drains one tick at a time. A tick that meets another is answered at once,
// and the running tick makes another step for it.
func TestTicksMeet(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	var running, steps atomic.Int64
	worker := ticked(t, tick.Config{}, func(context.Context) (lease.Report, error) {
		if running.Add(1) > 1 {
			t.Error("two steps at once")
		}
		defer running.Add(-1)
		if steps.Add(1) == 1 {
			close(entered)
			<-leave
		}
		return lease.Report{Done: 1}, nil
	})
	first := make(chan lease.Report)
	go func() { first <- report(t, do(worker)) }()
	soon(t, "the first tick works", entered)
	for range 10 {
		if got := report(t, do(worker)); got != (lease.Report{More: true}) {
			t.Errorf("a tick that met another reported %+v, want only more", got)
		}
	}
	close(leave)
	if got := soon(t, "the first tick's answer", first); got.Done != 2 || steps.Load() != 2 {
		t.Errorf("ten more ticks made %d more steps, want 1: %+v", steps.Load()-1, got)
	}
}

// Work that was committed before a tick is drained soon after it, however ticks meet.
func TestNoTickIsLost(t *testing.T) {
	t.Parallel()
	var due, done atomic.Int64
	worker := ticked(t, tick.Config{}, func(context.Context) (lease.Report, error) {
		n := due.Swap(0)
		done.Add(n)
		return lease.Report{Done: int(n)}, nil
	})
	const rounds, clients = 200, 8
	for range rounds {
		before := done.Load()
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				due.Add(1)
				do(worker)
			})
		}
		group.Wait()
		// All ticks were answered, so no step runs any more, and no work may be left.
		if n := done.Load() - before; n != clients {
			t.Fatalf("%d of %d were done when all ticks had ended", n, clients)
		}
	}
}

// After a step that reported more, as many steps as the source allows run at once. Each
// goes on while it reports more, and none after a failure.
func TestStepsAtOnce(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"all succeed": nil, "one fails": errors.New("planted")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const atOnce, batches = 3, 20
			meet := make(chan struct{})
			var running, most, steps atomic.Int64
			var alone atomic.Bool
			worker := tickedSources(t, tick.Config{}, tick.Source{Name: "batches", AtOnce: atOnce, Step: func(context.Context) (lease.Report, error) {
				n := steps.Add(1)
				now := running.Add(1)
				defer running.Add(-1)
				switch {
				case n == 1:
					alone.Store(true)
					runtime.Gosched() // another would come now
					defer alone.Store(false)
				case alone.Load():
					t.Error("the first step is not alone")
				case n <= 1+atOnce: // these wait for each other
					if now == atOnce {
						most.Store(now)
						close(meet)
					}
					<-meet
				case failure != nil:
					return lease.Report{}, failure
				}
				if now > atOnce {
					t.Errorf("%d steps run at once", now)
				}
				return lease.Report{Claimed: 1, Done: 1, More: n < batches}, nil
			}})
			answer := do(worker)
			if n := most.Load(); n != atOnce {
				t.Errorf("%d steps ran at once, want %d", n, atOnce)
			}
			if failure != nil {
				if n := steps.Load(); answer.Code != http.StatusInternalServerError || n > 1+2*atOnce {
					t.Errorf("after a failure: %d %s, %d steps", answer.Code, answer.Body, n)
				}
				return
			}
			// When one finds nothing more, each of the others may have begun one step more.
			if got := report(t, answer); got.More || got.Done < batches || got.Done >= batches+atOnce || got.Done != int(steps.Load()) {
				t.Errorf("%d steps reported %+v, want %d to %d, and no more", steps.Load(), got, batches, batches+atOnce-1)
			}
		})
	}
}

// A failure ends the tick, its cause is hidden, and the next tick works.
func TestTickFails(t *testing.T) {
	t.Parallel()
	var result error
	worker := ticked(t, tick.Config{}, func(context.Context) (lease.Report, error) { return lease.Report{}, result })
	for status, err := range map[int]error{500: errors.New("secret"), 503: fault.Unreachable("The database", errors.New("secret")), 200: nil} {
		result = err
		w := do(worker)
		if w.Code != status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("a step with the error %v was answered %d %s, want %d without the cause", err, w.Code, w.Body, status)
		}
		if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
			t.Error("Retry-After is missing")
		}
	}
}

// A source that fails or hangs holds up no other source, in the same tick or in one that
// comes meanwhile.
func TestSourcesStandAlone(t *testing.T) {
	t.Parallel()
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	drained := make(chan int64, 1)
	var due, done atomic.Int64
	due.Store(50)
	worker := ticked(t, tick.Config{}, []step{
		func(context.Context) (lease.Report, error) { return lease.Report{}, errors.New("secret") },
		func(context.Context) (lease.Report, error) {
			entered <- struct{}{}
			<-release
			return lease.Report{}, nil
		},
		func(context.Context) (lease.Report, error) {
			if due.Add(-1) < 0 {
				due.Store(0)
				select {
				case drained <- done.Load():
				default:
				}
				return lease.Report{}, nil
			}
			done.Add(1)
			return lease.Report{Claimed: 1, Done: 1, More: true}, nil
		},
	}...)
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- do(worker) }()
	soon(t, "the source that hangs is asked", entered)
	if n := soon(t, "the other source is drained", drained); n != 50 {
		t.Errorf("beside a source that fails and one that hangs %d of 50 batches were done in one tick", n)
	}
	due.Store(7)
	do(worker)
	if n := soon(t, "the other source is drained again", drained); n != 57 {
		t.Errorf("a tick that met a source that hangs did %d of 7 batches of another", n-50)
	}
	close(release)
	if w := soon(t, "the first tick ends", first); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a tick with a source that failed was answered %d %s, want 500", w.Code, w.Body)
	}
}

// A payload that makes a step panic must not stop the function for ever.
func TestTickPanics(t *testing.T) {
	t.Parallel()
	var steps atomic.Int64
	worker := ticked(t, tick.Config{}, func(context.Context) (lease.Report, error) {
		if steps.Add(1) == 1 {
			panic("secret")
		}
		return lease.Report{Done: 1}, nil
	})
	if w := do(worker); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a step that panics was answered %d %s, want 500 without the cause", w.Code, w.Body)
	}
	if got := report(t, do(worker)); got.Done != 1 {
		t.Errorf("the tick after a panic reported %+v, want 1 done", got)
	}
}

// A tick continues after its caller has left.
func TestTickOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	gone, finished := make(chan struct{}), make(chan error, 1)
	worker := ticked(t, tick.Config{}, func(ctx context.Context) (lease.Report, error) {
		<-gone
		finished <- ctx.Err()
		return lease.Report{}, nil
	})
	ctx, leave := context.WithCancel(context.Background())
	go worker.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, tick.Path, nil).WithContext(ctx))
	leave()
	close(gone)
	if err := soon(t, "the step ends", finished); err != nil {
		t.Errorf("the step's context ended with the caller: %v", err)
	}
}

// A store that hangs must not look idle: the tick fails, and the log names the source.
func TestStepThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := ticked(t, tick.Config{Budget: 100 * time.Millisecond}, func(ctx context.Context) (lease.Report, error) {
			<-ctx.Done()
			return lease.Report{}, ctx.Err()
		})
		w := do(worker)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("a step that hung for the whole budget was answered %d %s, want 503", w.Code, w.Body)
		}
		if log := worker.log.String(); !strings.Contains(log, "a step had run for") || !strings.Contains(log, "source=0") {
			t.Errorf("the log does not say which source hung: %q", log)
		}
	})
}

// The budget ends a drain that has no end, and the tick reports that there is more. A busy
// source always has a step under way then, which is no fault.
func TestBudgetCutsABusyStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := ticked(t, tick.Config{Budget: time.Second}, func(ctx context.Context) (lease.Report, error) {
			select {
			case <-ctx.Done():
				return lease.Report{}, ctx.Err()
			case <-time.After(300 * time.Millisecond):
				return lease.Report{Claimed: 1, Done: 1, More: true}, nil
			}
		})
		began := time.Now()
		if got := report(t, do(worker)); !got.More || got.Done != 3 {
			t.Errorf("a budget of 1 s is enough for 3 steps of 300 ms; the report is %+v", got)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("a budget of 1 s took %s", took)
		}
		if log := worker.log.String(); log != "" {
			t.Errorf("the end of the budget is logged as a fault: %s", log)
		}
	})
}

// Where cron ticks once a minute, a tick lingers and polls, so that work that becomes due
// in between does not wait.
func TestTickLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		steps := 0
		worker := ticked(t, tick.Config{Linger: 200 * time.Millisecond, Poll: 30 * time.Millisecond}, func(context.Context) (lease.Report, error) {
			steps++
			return lease.Report{Claimed: steps % 2, Done: steps % 2}, nil
		})
		began := time.Now()
		got := report(t, do(worker))
		if took := time.Since(began); took != 200*time.Millisecond || steps != 7 || got.Done != 4 {
			t.Errorf("a tick lingered for %s and polled %d times: %+v; want 200 ms and 7 times", took, steps, got)
		}
	})
}

// A shutdown ends a tick without a fault, and the process can wait for its end.
func TestEndOfLifeEndsTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		worker := ticked(t, tick.Config{}, func(ctx context.Context) (lease.Report, error) {
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
			ended = true
			return lease.Report{}, ctx.Err()
		})
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- do(worker) }()
		synctest.Wait() // the step works
		worker.end()
		worker.busy.Wait()
		if !ended {
			t.Error("the process did not wait for the tick")
		}
		if w := <-answer; w.Code != http.StatusOK || worker.log.String() != "" {
			t.Errorf("a shutdown looks like a fault: %d %s; log %q", w.Code, w.Body, worker.log)
		}
	})
}
