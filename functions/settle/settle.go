// Package settle is the function that deals with completed transfers, each once,
// and has their owners told.
package settle

import (
	"context"

	"github.com/miniserversystem/miniserver/functions/internal/broker"
	"github.com/miniserversystem/miniserver/functions/internal/consume"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	// The event for the owners is in the outbox then.
	consumption := consume.New(e, transfer.NewStore(pool), "relay")
	consumer := broker.Completed(e)
	e.Tick(func(ctx context.Context) (fn.Report, error) { return consumption.Step(ctx, consumer) })
	return nil
}
