package fn_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn"
)

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// While a wake is on its way all others become one more, and nobody waits.
func TestWakesCoalesce(t *testing.T) {
	t.Parallel()
	runtime, _ := setup(t, nil)
	arrived, let := make(chan string, 100), make(chan struct{})
	var flying atomic.Int64
	runtime.Invoke = roundTripper(func(r *http.Request) (*http.Response, error) {
		if flying.Add(1) > 1 {
			t.Error("two wakes of one function at once")
		}
		defer flying.Add(-1)
		arrived <- r.Method + " " + r.URL.String()
		select {
		case <-let:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	runtime.Wake("relay")
	if got := soon(t, "the first wake", arrived); got != "POST http://relay/tick" {
		t.Error(got)
	}
	started := time.Now()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 1000 {
				runtime.Wake("relay")
			}
		})
	}
	group.Wait()
	if took := time.Since(started); took > time.Second {
		t.Errorf("wakes took %s", took)
	}
	close(let)
	soon(t, "the second wake", arrived)
	time.Sleep(150 * time.Millisecond) // for one that should not come
	// One of the 8000 may have found the first one's 50 ms over.
	if n := len(arrived); n > 2 {
		t.Errorf("8000 wakes became %d", n+1)
	}
}

// A function that does not answer holds a wake for 50 ms, and others not at all.
func TestWakeGivesUp(t *testing.T) {
	t.Parallel()
	runtime, _ := setup(t, nil)
	gaveUp, other := make(chan time.Duration, 1), make(chan struct{}, 1)
	runtime.Invoke = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "other" {
			other <- struct{}{}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}
		started := time.Now()
		<-r.Context().Done()
		gaveUp <- time.Since(started)
		return nil, r.Context().Err()
	})
	runtime.Wake("stuck")
	runtime.Wake("other")
	soon(t, "the other function's wake", other)
	if took := soon(t, "the wake gives up", gaveUp); took > time.Second {
		t.Errorf("it held for %s", took)
	}
}

// Switched off, or after the end, nothing is woken.
func TestNoWakes(t *testing.T) {
	t.Parallel()
	for _, environment := range []string{"WAKES=false", "WAKES=true"} {
		runtime, _ := setup(t, nil, environment)
		runtime.Invoke = roundTripper(func(*http.Request) (*http.Response, error) {
			t.Errorf("%s: woken", environment)
			return nil, http.ErrHandlerTimeout
		})
		if environment == "WAKES=true" {
			runtime.Close()
		}
		runtime.Wake("relay")
	}
	(&fn.Runtime{}).Wake("relay") // nobody to reach yet
	time.Sleep(50 * time.Millisecond)
}

// A function wakes whom the registry lists, and nobody else: the network of some
// platforms would not let it through, so it must not work on the others.
func TestWakesWhomTheRegistryLists(t *testing.T) {
	t.Parallel()
	var env *fn.Env
	runtime, _ := setup(t, []fn.Function{{Name: "grant", Wakes: []string{"relay"}, New: func(e *fn.Env) error {
		env = e
		return nil
	}}})
	arrived := make(chan string, 2)
	runtime.Invoke = roundTripper(func(r *http.Request) (*http.Response, error) {
		arrived <- r.URL.Host
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	env.Wake("settle")
	env.Wake("relay")
	if got := soon(t, "a wake", arrived); got != "relay" {
		t.Errorf("woke %s", got)
	}
	runtime.Close()
	if len(arrived) > 0 {
		t.Errorf("woke %s too", <-arrived)
	}
}
