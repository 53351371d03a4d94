// Package watchdog is the function that ends transfers which were begun and abandoned.
package watchdog

import (
	"context"

	"github.com/miniserversystem/miniserver/functions/internal/transfers"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	store := transfer.NewStore(pool)
	metrics, err := transfers.NewMetrics(e)
	if err != nil {
		return err
	}
	e.Tick(tick.Source{Name: "keys", Step: func(ctx context.Context) (lease.Report, error) {
		report, dwells, err := store.EndOrphans(ctx, e.Settings.TransferOrphanAfter)
		for _, dwell := range dwells {
			metrics.Ended(ctx, transfer.Failed, transfer.TimedOut, dwell)
		}
		return report, err
	}})
	return transfers.Watch(e, store)
}
