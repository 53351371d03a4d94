// Package match is the function that pairs waiting players.
package match

import (
	"context"

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
			pass, err := store.Match(ctx, mode, pairs)
			if err != nil {
				return lease.Report{}, err
			}
			busy = pass.More
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

// report counts tickets: those that were matched are done, those that expired dead.
func report(p matchmaking.Pass) lease.Report {
	matched := 2 * len(p.Matches)
	return lease.Report{Claimed: matched + p.Expired, Done: matched, Dead: p.Expired, More: p.More}
}
