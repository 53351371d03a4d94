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

// fewPairs is how many pairs a pass may make after one that left none to make: most
// passes are woken by one player who joined.
const fewPairs = 8

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
			if busy = pass.More; busy && len(pass.Matches) == 0 {
				rest(ctx, time.Since(began))
			}
			metrics.Pass(ctx, pass)
			if len(pass.Matches) > 0 {
				wake()
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

// rest leaves Redis to others for as long as a pass had it that found nobody to match: of
// very many who wait, each is looked at when its window widens.
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
