package tick

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// wakeTimeout is how long a wake waits for the function to take it.
const wakeTimeout = 50 * time.Millisecond

// Waker nudges functions after a commit, so that they run now and not at their next
// tick. It is best effort: a wake that fails costs latency, never data. Its zero value
// wakes nothing.
type Waker struct {
	Invoke  http.RoundTripper // nil: nothing is woken
	Log     *slog.Logger
	Life    context.Context // ends when the process shuts down, and wakes nothing after
	Metrics *Metrics

	mutex sync.Mutex
	wakes map[string]*wake // by function
}

// Wake wakes a function and returns at once. Wakes of one function coalesce: while one
// is on its way, all others become one more.
func (w *Waker) Wake(function string) {
	if w.Invoke == nil || w.Life.Err() != nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	one := w.wakes[function]
	if one == nil {
		one = &wake{waker: w, function: function}
		if w.wakes == nil {
			w.wakes = map[string]*wake{}
		}
		w.wakes[function] = one
	}
	if one.running {
		one.again = true
		return
	}
	one.running = true
	go one.run()
}

// wake is the wakes of one function. The waker's mutex guards it.
type wake struct {
	waker          *Waker
	function       string
	running, again bool
	failed         int64 // wakes that were not taken
}

func (o *wake) run() {
	for o.once() {
	}
}

// once sends a wake and reports whether another one came meanwhile.
func (o *wake) once() bool {
	w := o.waker
	ctx, cancel := context.WithTimeout(w.Life, wakeTimeout)
	err := send(ctx, w.Invoke, o.function, Path+"?"+causeWake)
	cancel()
	w.Metrics.woke(w.Life, o.function, err)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if err != nil {
		o.failed++
		w.Log.Debug("wake not taken", "function", o.function, "failed", o.failed, "error", err.Error())
	}
	o.running = o.again && w.Life.Err() == nil
	o.again = false
	return o.running
}
