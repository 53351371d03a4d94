// Package backlog is shared by the functions that work on leased tables: it measures
// which rows are not done.
package backlog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// Table is a leased table.
type Table struct {
	Name, Done string               // see lease.Backlog
	InFlight   string               // its status of claimed rows
	Labels     []attribute.KeyValue // which of the family it is
	Pool       *pgxpool.Pool
}

// Watch measures tables each time that metrics are read, as <family>.backlog and
// <family>.oldest_age. A status without rows is 0.
func Watch(e *fn.Env, family string, tables ...Table) error {
	meter, err := e.Meter(family)
	if err != nil {
		return err
	}
	rows, errRows := meter.Int64ObservableGauge(family+".backlog",
		metric.WithDescription("Rows that are not done, by status: PENDING, claimed (IN_FLIGHT, PROCESSING), FAILED. Up to 100,000."))
	age, errAge := meter.Float64ObservableGauge(family+".oldest_age", metric.WithUnit("s"),
		metric.WithDescription("How long ago the oldest of them was created."))
	if err := errors.Join(errRows, errAge); err != nil {
		return err
	}
	return telemetry.Measure(meter, func(ctx context.Context, o metric.Observer) error {
		var failures []error
		for _, table := range tables {
			waiting, err := lease.Backlog(ctx, table.Pool, table.Name, table.Done)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			found := map[string]lease.Waiting{lease.Pending: {}, table.InFlight: {}, lease.Failed: {}}
			for _, w := range waiting {
				found[w.Status] = w
			}
			for status, w := range found {
				labels := metric.WithAttributes(append([]attribute.KeyValue{attribute.String("status", status)}, table.Labels...)...)
				o.ObserveInt64(rows, int64(w.Rows), labels)
				o.ObserveFloat64(age, w.Oldest.Seconds(), labels)
			}
		}
		return errors.Join(failures...)
	}, rows, age)
}
