package fn

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

// wakeTimeout is how long a wake waits for the function to take it.
const wakeTimeout = 50 * time.Millisecond

// Wake nudges another function after a commit, so that it runs now and not at
// its next tick. It returns at once. It is best effort: a wake that fails costs
// latency, never data. Wakes of one function coalesce: while one is on its way,
// all others become one more.
func (rt *Runtime) Wake(function string) {
	if !rt.Settings.Wakes || rt.Invoke == nil {
		return
	}
	rt.mutex.Lock()
	w := rt.wakers[function]
	if w == nil {
		w = &waker{log: rt.Log, invoke: rt.Invoke, url: "http://" + function + TickPath}
		rt.wakers[function] = w
	}
	rt.mutex.Unlock()
	w.wake(rt.life)
}

// Wake nudges a function that the registry says this one wakes. Another is not
// woken, here as on platforms whose network would not let the wake through.
func (e *Env) Wake(function string) {
	if !slices.Contains(e.Function.Wakes, function) {
		e.Logger().Error("not woken: it is not among the function's Wakes in the registry", "wakes", function)
		return
	}
	e.Runtime.Wake(function)
}

type waker struct {
	log    *slog.Logger
	invoke http.RoundTripper
	url    string

	mutex   sync.Mutex
	running bool
	again   bool
	failed  int64 // wakes that were not taken
}

func (w *waker) wake(life context.Context) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.running {
		w.again = true
		return
	}
	if life.Err() != nil {
		return
	}
	w.running = true
	go w.run(life)
}

func (w *waker) run(life context.Context) {
	for {
		err := w.send(life)
		w.mutex.Lock()
		if err != nil {
			w.failed++
			w.log.Debug("wake not taken", "url", w.url, "failed", w.failed, "error", err.Error())
		}
		if !w.again || life.Err() != nil {
			w.running = false
			w.mutex.Unlock()
			return
		}
		w.again = false
		w.mutex.Unlock()
	}
}

func (w *waker) send(life context.Context) error {
	ctx, cancel := context.WithTimeout(life, wakeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := w.invoke.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, MaxBodyBytes))
	return err
}
