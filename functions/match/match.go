// Package match is the function that pairs waiting players.
package match

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// fewPairs is how many pairs a pass may make after one that left none to make, as most
// passes are woken by one player who joined, or that found nobody: Redis answers nobody
// else during a pass.
const fewPairs = 8

// longestRest bounds the rest after a pass that waited for Redis itself.
const longestRest = 100 * time.Millisecond

// New registers the function.
func New(e *fn.Env) error {
	store, metrics, err := queues.Open(e)
	if err != nil {
		return err
	}
	wake := e.Waker("announce")
	pass := func(mode string) tick.Source {
		busy := false
		return tick.Source{Name: mode, Step: func(ctx context.Context) (lease.Report, error) {
			pairs := e.Settings.MatchmakingPairs
			if !busy {
				pairs = min(pairs, fewPairs)
			}
			began := time.Now()
			pass, err := store.Match(ctx, mode, pairs)
			if err != nil {
				return lease.Report{}, err
			}
			took := time.Since(began)
			busy = pass.More && (len(pass.Matches) > 0 || pass.Expired > 0)
			metrics.Pass(ctx, pass)
			if len(pass.Matches) > 0 {
				wake()
			}
			if pass.More && !busy {
				rest(ctx, min(took, longestRest))
			}
			return report(pass), nil
		}}
	}
	var modes []tick.Source
	for _, mode := range store.Modes() {
		modes = append(modes, pass(mode))
	}
	e.Tick(modes...)
	return nil
}

// rest leaves Redis to others for as long as a pass took that found nobody. While very many
// wait, windows widen all the time, and the next pass would follow at once.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// report counts tickets: those that were matched are done, those that expired dead.
func report(p matchmaking.Pass) lease.Report {
	matched := 2 * len(p.Matches)
	return lease.Report{Claimed: matched + p.Expired, Done: matched, Dead: p.Expired, More: p.More}
}
