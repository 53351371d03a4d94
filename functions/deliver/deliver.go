// Package deliver is the function that sends notifications to the client,
// through the log or through webhooks.
package deliver

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/functions/internal/backlog"
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
	if err := backlog.Watch(e, "notification", backlog.Table{
		Name: notification.Table, Done: "sent_at", InFlight: notification.Processing, Pool: pool,
	}); err != nil {
		return err
	}
	if channel, err = measured(e, channel); err != nil {
		return err
	}
	policy := e.Policy()
	policy.MaxAttempts = cmp.Or(e.Settings.DeliveryMaxAttempts, policy.MaxAttempts)
	policy.BackoffCap = cmp.Or(e.Settings.DeliveryBackoffCap, policy.BackoffCap)
	deliverer := notification.NewDeliverer(pool, policy, e.Worker(), channel, e.Logger())
	if e.Settings.NotificationChannel == "webhook" {
		deliverer.SendTimeout = e.Settings.WebhookTimeout
	}
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

// measuredChannel measures what a channel does.
type measuredChannel struct {
	notification.Channel
	sent     metric.Float64Histogram
	attempts metric.Int64Counter
}

func measured(e *fn.Env, channel notification.Channel) (notification.Channel, error) {
	meter, err := e.Meter("notification")
	if err != nil {
		return nil, err
	}
	sent, errSent := meter.Float64Histogram("notification.sent_after", metric.WithUnit("s"),
		metric.WithDescription("From the change (a grant, a match, a transfer) to its delivery, by event_type."))
	attempts, errAttempts := meter.Int64Counter("notification.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts to deliver, by result: delivered, again, never."))
	return measuredChannel{channel, sent, attempts}, errors.Join(errSent, errAttempts)
}

// Send is the channel's.
func (c measuredChannel) Send(ctx context.Context, o notification.Outgoing) error {
	err := c.Channel.Send(ctx, o)
	result := "delivered"
	switch {
	case notification.IsNever(err):
		result = "never"
	case err != nil:
		result = "again"
	default:
		c.sent.Record(ctx, time.Since(o.OccurredAt).Seconds(), metric.WithAttributes(attribute.String("event_type", o.EventType)))
	}
	c.attempts.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
	return err
}
