// Package settle is the function that settles completed transfers, each once, and
// publishes an event for their owners.
package settle

import (
	"context"
	"log/slog"

	"github.com/miniserversystem/miniserver/functions/internal/broker"
	"github.com/miniserversystem/miniserver/functions/internal/consume"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	// Wake relay: the event for the owners is then in the outbox.
	consumption, err := consume.New(e, logged{transfer.NewStore(pool), e.Logger()}, "relay")
	if err != nil {
		return err
	}
	consumer := broker.Completed(e)
	e.Tick(consumption.Source(event.TransferSubject, consumer))
	return nil
}

// logged logs which transfers are settled.
type logged struct {
	*transfer.Store
	log *slog.Logger
}

func (l logged) AcceptAll(ctx context.Context, records []event.Record) error {
	err := l.Store.AcceptAll(ctx, records)
	if err == nil {
		for _, r := range records {
			l.log.InfoContext(ctx, "transfer settled", "transferId", r.Key, "event_id", r.ID)
		}
	}
	return err
}
