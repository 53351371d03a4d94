package relay

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// backlog is an outbox whose unfinished rows are counted.
type backlog struct {
	pool  *pgxpool.Pool
	table string
}

// watchBacklog measures the outboxes each time that metrics are read.
func watchBacklog(e *fn.Env, outboxes map[string]backlog) error {
	meter, err := e.Meter("outbox")
	if err != nil {
		return err
	}
	rows, errRows := meter.Int64ObservableGauge("outbox.backlog", metric.WithDescription("Events that are not published yet, up to 100,000."))
	age, errAge := meter.Float64ObservableGauge("outbox.oldest_age", metric.WithUnit("s"), metric.WithDescription("How long the oldest of them has waited."))
	if err := errors.Join(errRows, errAge); err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, telemetry.MeasureTimeout)
		defer cancel()
		var failures []error
		for name, b := range outboxes {
			n, oldest, err := outbox.Backlog(ctx, b.pool, b.table)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			label := metric.WithAttributes(attribute.String("outbox", name))
			o.ObserveInt64(rows, int64(n), label)
			o.ObserveFloat64(age, oldest.Seconds(), label)
		}
		return errors.Join(failures...)
	}, rows, age)
	return err
}
