// Package transfers is shared by the functions of transfers: their metrics.
package transfers

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// Metrics count how transfers end. The share of FAILED is
// transfer_ended_total{status="FAILED"} divided by the sum of all statuses.
type Metrics struct {
	ended metric.Int64Counter
	dwell metric.Float64Histogram
}

const meterName = "transfer"

// NewMetrics returns the metrics; they count nothing where nobody reads them.
func NewMetrics(e *fn.Env) (*Metrics, error) {
	meter, err := e.Meter(meterName)
	if err != nil {
		return nil, err
	}
	ended, errEnded := meter.Int64Counter("transfer.ended", metric.WithDescription("Transfers that ended, by status and error code."))
	dwell, errDwell := meter.Float64Histogram("transfer.in_progress.dwell", metric.WithUnit("s"),
		metric.WithDescription("How long a transfer's key was IN_PROGRESS, by the status that it ended with."))
	return &Metrics{ended, dwell}, errors.Join(errEnded, errDwell)
}

// Ended counts a transfer that ended.
func (m *Metrics) Ended(ctx context.Context, status, code string, dwell time.Duration) {
	m.ended.Add(ctx, 1, metric.WithAttributes(attribute.String("status", status), attribute.String("code", code)))
	m.dwell.Record(ctx, dwell.Seconds(), metric.WithAttributes(attribute.String("status", status)))
}

// Watch measures transfers in progress, each time that metrics are read.
func Watch(e *fn.Env, store *transfer.Store) error {
	meter, err := e.Meter(meterName)
	if err != nil {
		return err
	}
	open, errOpen := meter.Int64ObservableGauge("transfer.in_progress", metric.WithDescription("Transfers in progress now."))
	oldest, errOldest := meter.Float64ObservableGauge("transfer.in_progress.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest of them is in progress."))
	if err := errors.Join(errOpen, errOldest); err != nil {
		return err
	}
	return telemetry.Measure(meter, func(ctx context.Context, o metric.Observer) error {
		n, age, err := store.InProgress(ctx)
		if err != nil {
			return err
		}
		o.ObserveInt64(open, int64(n))
		o.ObserveFloat64(oldest, age.Seconds())
		return nil
	}, open, oldest)
}
