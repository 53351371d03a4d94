// Package deliver is the function that sends notifications to the client,
// through the log or through webhooks.
package deliver

import (
	"cmp"
	"context"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/webhook"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	channel, err := channelOf(e)
	if err != nil {
		return err
	}
	policy := e.Policy()
	policy.MaxAttempts = cmp.Or(e.Settings.DeliveryMaxAttempts, policy.MaxAttempts)
	policy.BackoffCap = cmp.Or(e.Settings.DeliveryBackoffCap, policy.BackoffCap)
	deliverer := notification.NewDeliverer(pool, policy, e.Worker(), channel, e.Logger())
	step := deliverer.Step
	if hub := e.Live(); hub != nil {
		deliverer.OnSent = func(ctx context.Context, userIDs []string) {
			for _, userID := range userIDs {
				hub.Nudge(ctx, userID)
			}
		}
		step = func(ctx context.Context) (lease.Report, error) {
			hub.Connect() // before the first nudge, which does not wait for a connection
			return deliverer.Step(ctx)
		}
	}
	e.Tick(tick.Source{Name: "notifications", Step: step})
	return nil
}

func channelOf(e *fn.Env) (notification.Channel, error) {
	s := e.Settings
	if s.NotificationChannel != "webhook" {
		return notification.LogChannel{Log: e.Logger()}, nil
	}
	return webhook.New(webhook.Options{
		URLs: s.WebhookURLs, Secrets: s.WebhookSecrets,
		AllowPrivate: s.WebhookAllowPrivate, Timeout: s.WebhookTimeout,
	})
}
