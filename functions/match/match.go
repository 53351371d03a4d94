// Package match is the function that pairs the players who wait.
package match

import (
	"context"

	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// fewPairs is what a pass offers to make when the one before it made all it could:
// most passes are woken by one player who joined.
const fewPairs = 8

// queue is one mode, and how much is going on there.
type queue struct {
	mode string
	busy bool
}

// New registers the function.
func New(e *fn.Env) error {
	store, metrics, err := queues.Open(e)
	if err != nil {
		return err
	}
	var modes []*queue
	for _, mode := range store.Modes() {
		modes = append(modes, &queue{mode: mode})
	}
	step := func(ctx context.Context, q *queue) (fn.Report, error) {
		pairs := e.Settings.MatchmakingPairs
		if !q.busy {
			pairs = min(pairs, fewPairs)
		}
		pass, err := store.Match(ctx, q.mode, pairs)
		if err != nil {
			return fn.Report{}, err
		}
		q.busy = pass.More
		metrics.Pass(ctx, pass)
		if len(pass.Matches) > 0 {
			e.Wake("announce")
		}
		return report(pass), nil
	}
	e.Tick(func(ctx context.Context) (fn.Report, error) { return fn.SideBySide(ctx, modes, step) })
	return nil
}

// report counts tickets: those that were matched are done, those that expired dead.
func report(p matchmaking.Pass) fn.Report {
	matched := 2 * len(p.Matches)
	return fn.Report{Claimed: matched + p.Expired, Done: matched, Dead: p.Expired, More: p.More}
}
