// Package watchdog is the function that ends transfers which somebody began and
// nobody goes on with.
package watchdog

import (
	"context"

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
	e.Tick(func(ctx context.Context) (fn.Report, error) {
		return store.EndOrphans(ctx, e.Settings.TransferOrphanAfter)
	})
	return nil
}
