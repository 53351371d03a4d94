package tick_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn/tick"
)

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func waker(invoke roundTripper) (w *tick.Waker, end context.CancelFunc) {
	life, end := context.WithCancel(context.Background())
	return &tick.Waker{Invoke: invoke, Log: slog.New(slog.DiscardHandler), Life: life}, end
}

func taken() (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// All wakes that come while one is on its way become one more, and none of them blocks.
func TestWakesCoalesce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var arrived []string // one wake of a function at a time, so that nothing races
		let := make(chan struct{})
		w, end := waker(func(r *http.Request) (*http.Response, error) {
			arrived = append(arrived, r.Method+" "+r.URL.String())
			<-let
			return taken()
		})
		defer end()
		w.Wake("relay")
		synctest.Wait()
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 1000 {
					w.Wake("relay")
				}
			})
		}
		group.Wait()
		synctest.Wait()
		if len(arrived) != 1 || arrived[0] != "POST http://relay/tick?wake" {
			t.Errorf("the wakes %q are on their way at once, want one", arrived)
		}
		close(let)
		synctest.Wait()
		if len(arrived) != 2 {
			t.Errorf("8001 wakes became %d calls, want 2", len(arrived))
		}
	})
}

// A function that does not answer holds up its own wake for 50 ms, and no other wake.
func TestWakeGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		var other atomic.Bool
		w, end := waker(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "other" {
				other.Store(true)
				return taken()
			}
			started := time.Now()
			<-r.Context().Done()
			held.Store(int64(time.Since(started)))
			return nil, r.Context().Err()
		})
		defer end()
		w.Wake("stuck")
		w.Wake("other")
		synctest.Wait()
		if !other.Load() || held.Load() != 0 {
			t.Errorf("while a function hangs, the other is woken: %v; the wake that hangs ended after %s", other.Load(), time.Duration(held.Load()))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if held := time.Duration(held.Load()); held != 50*time.Millisecond {
			t.Errorf("a function that hangs held its wake for %s, want 50 ms", held)
		}
	})
}

// A waker that is switched off, or whose life has ended, wakes nothing.
func TestNoWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, end := waker(func(r *http.Request) (*http.Response, error) {
			t.Errorf("%s is woken after the end", r.URL.Host)
			return taken()
		})
		end()
		w.Wake("relay")
		(&tick.Waker{}).Wake("relay")
		synctest.Wait()
	})
}

// Functions with the same interval are ticked 30 ms apart, and again whether or not the
// tick before has ended.
func TestSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		began := time.Now()
		var mutex sync.Mutex
		ticks := map[string][]time.Duration{}
		invoke := roundTripper(func(r *http.Request) (*http.Response, error) {
			mutex.Lock()
			ticks[r.URL.Host] = append(ticks[r.URL.Host], time.Since(began))
			mutex.Unlock()
			<-r.Context().Done() // a function that hangs
			return nil, r.Context().Err()
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tick.Run(ctx, []tick.Every{{Function: "relay", Interval: time.Second}, {Function: "watchdog", Interval: 10 * time.Second}, {Function: "notify", Interval: time.Second}},
				invoke, slog.New(slog.DiscardHandler))
		}()
		time.Sleep(2500 * time.Millisecond)
		end()
		<-ended
		for function, want := range map[string][]time.Duration{
			"relay": {0, time.Second, 2 * time.Second}, "watchdog": {0},
			"notify": {30 * time.Millisecond, 1030 * time.Millisecond, 2030 * time.Millisecond},
		} {
			if got := ticks[function]; len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
				t.Errorf("%s is ticked after %v, want %v", function, got, want)
			}
		}
	})
}
