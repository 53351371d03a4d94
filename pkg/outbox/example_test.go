package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

// console is a broker that takes and prints every event.
type console struct{}

func (console) Ready(context.Context) error { return nil }

func (console) Publish(_ context.Context, messages []event.Message) []error {
	for _, m := range messages {
		fmt.Println(m.ShortType(), "of", m.Key)
	}
	return make([]error, len(messages))
}

// An event is written in the transaction of its change, so it exists exactly if the change
// does. The relay publishes it afterwards, and retries until it succeeds.
func ExampleRelay() {
	t := kit.ForExample()
	defer t.End()
	pool, ctx := kit.Pool(t), t.Context()

	grant := func(user string, fails error) {
		tx, err := pool.Begin(ctx)
		kit.Must(t, err)
		defer func() { _ = tx.Rollback(ctx) }()
		_, err = tx.Exec(ctx, `
			WITH change AS (INSERT INTO entitlement.entitlements VALUES ($1, 'hat', 'ACTIVE', 1, now()))
			INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, occurred_at, payload)
			SELECT id, $1 || '/hat', 'EntitlementGranted', now(), jsonb_build_object('event_id', id, 'event_type', 'EntitlementGranted',
				'occurred_at', '2026-01-08T07:10:00Z', 'user_id', $1::text, 'stock_keeping_unit', 'hat', 'version', 1)
			FROM gen_random_uuid() id`, user)
		kit.Must(t, err)
		if fails == nil {
			kit.Must(t, tx.Commit(ctx))
		}
	}
	grant("ann", nil)
	grant("bob", errors.New("the purchase was declined"))

	report, err := outbox.NewRelay(config(pool, console{})).Step(ctx)
	fmt.Println(report.Done, "published,", err)
	// Output:
	// EntitlementGranted of ann/hat
	// 1 published, <nil>
}
