package fn

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// RunSchedule ticks every function that has a schedule, until ctx ends. It is the
// cron of a process that holds all functions. A tick that is still running when
// the next is due is not met by another.
func (rt *Runtime) RunSchedule(ctx context.Context) {
	var group sync.WaitGroup
	for _, f := range rt.Functions {
		if f.Schedule <= 0 {
			continue
		}
		group.Go(func() { rt.tickEvery(ctx, f) })
	}
	group.Wait()
}

func (rt *Runtime) tickEvery(ctx context.Context, f Function) {
	ticker := time.NewTicker(f.Schedule)
	defer ticker.Stop()
	for {
		rt.tick(ctx, f.Name)
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
