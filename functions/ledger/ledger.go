// Package ledger is the function that writes the two ledger entries of each transfer,
// including those that a crash left out.
package ledger

import (
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	e.Tick(tick.Source{Name: "ledger", Step: transfer.NewStore(pool).WriteLedger})
	return nil
}
