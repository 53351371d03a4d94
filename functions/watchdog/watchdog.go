// Package watchdog is the function that ends transfers which somebody began and
// nobody goes on with.
package watchdog

import (
	"context"

	"github.com/miniserversystem/miniserver/functions/internal/moves"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	store := transfer.NewStore(pool)
	metrics, err := moves.NewMetrics(e)
	if err != nil {
		return err
	}
	e.Tick(fn.Source{Name: "keys", Step: func(ctx context.Context) (fn.Report, error) {
		report, dwells, err := store.EndOrphans(ctx, e.Settings.TransferOrphanAfter)
		for _, dwell := range dwells {
			metrics.Ended(ctx, transfer.Failed, transfer.TimedOut, dwell)
		}
		return report, err
	}})
	return moves.Watch(e, store)
}
