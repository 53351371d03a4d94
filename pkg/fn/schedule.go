package fn

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// scheduleStagger is between the ticks of functions with the same schedule.
const scheduleStagger = 30 * time.Millisecond

// RunSchedule ticks every function that has a schedule, until ctx ends. It is the
// cron of a process that holds all functions. Ticks overlap, as they do on platforms: a
// source that hangs does not keep the others of its function from the next tick.
func (rt *Runtime) RunSchedule(ctx context.Context) {
	var group sync.WaitGroup
	started := map[time.Duration]int{}
	for _, f := range rt.Functions {
		if f.Schedule <= 0 {
			continue
		}
		// The registry lists a chain in its order, relay before notify: each starts a
		// little after the one before and finds what that one left.
		after := time.Duration(started[f.Schedule]) * scheduleStagger
		started[f.Schedule]++
		group.Go(func() {
			select {
			case <-time.After(after):
				rt.tickEvery(ctx, f)
			case <-ctx.Done():
			}
		})
	}
	group.Wait()
}

func (rt *Runtime) tickEvery(ctx context.Context, f Function) {
	ticker := time.NewTicker(f.Schedule)
	defer ticker.Stop()
	var ticks sync.WaitGroup
	defer ticks.Wait()
	for {
		ticks.Go(func() { rt.tick(ctx, f.Name) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (rt *Runtime) tick(ctx context.Context, function string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+function+TickPath, http.NoBody)
	if err != nil {
		return
	}
	response, err := rt.Invoke.RoundTrip(request)
	if err != nil {
		if ctx.Err() == nil {
			rt.Log.Warn("tick not taken", "function", function, "error", err.Error())
		}
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, MaxBodyBytes))
	_ = response.Body.Close()
}
