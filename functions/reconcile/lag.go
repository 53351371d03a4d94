package reconcile

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// watchLag measures what brokers hold for consumers, each time that metrics are read.
// This function may ask the broker about all of them.
func watchLag(e *fn.Env, consumers map[string]consumer) error {
	meter, err := e.Meter("consumer")
	if err != nil {
		return err
	}
	lag, err := meter.Int64ObservableGauge("consumer.lag", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that are not acknowledged yet, by subject."))
	if err != nil {
		return err
	}
	return telemetry.Measure(meter, func(ctx context.Context, o metric.Observer) error {
		var failures []error
		for subject, c := range consumers {
			n, err := c.messages.Waiting(ctx)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			o.ObserveInt64(lag, int64(n), metric.WithAttributes(attribute.String("subject", subject)))
		}
		return errors.Join(failures...)
	}, lag)
}
