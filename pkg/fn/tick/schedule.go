package tick

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Every is how often a function is ticked.
type Every struct {
	Function string
	Interval time.Duration
}

// stagger is between the ticks of functions with the same interval.
const stagger = 30 * time.Millisecond

// Run ticks functions through invoke until ctx ends. It is the cron of a process that
// holds all functions. Ticks overlap, as they do on platforms: a source that hangs does
// not keep the others of its function from the next tick.
func Run(ctx context.Context, schedule []Every, invoke http.RoundTripper, log *slog.Logger) {
	var group sync.WaitGroup
	started := map[time.Duration]int{}
	for _, s := range schedule {
		// The schedule lists a chain in its order, relay before notify: each starts a
		// little after the one before and finds what that one left.
		after := time.Duration(started[s.Interval]) * stagger
		started[s.Interval]++
		group.Go(func() {
			select {
			case <-time.After(after):
				tickEvery(ctx, s, invoke, log)
			case <-ctx.Done():
			}
		})
	}
	group.Wait()
}

func tickEvery(ctx context.Context, s Every, invoke http.RoundTripper, log *slog.Logger) {
	ticker := time.NewTicker(s.Interval)
	defer ticker.Stop()
	var ticks sync.WaitGroup
	defer ticks.Wait()
	for {
		ticks.Go(func() {
			if err := send(ctx, invoke, s.Function, Path); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "tick not taken", "function", s.Function, "error", err.Error())
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// maxAnswer is how much of a tick's answer is read, so that its connection is used again.
const maxAnswer = 64 << 10

// send ticks a function and waits for its answer, whatever its status.
func send(ctx context.Context, invoke http.RoundTripper, function, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+function+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := invoke.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	return err
}
