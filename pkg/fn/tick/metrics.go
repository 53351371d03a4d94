package tick

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/lease"
)

// Metrics count ticks, what they worked on, and wakes. Those that are nil count nothing.
type Metrics struct {
	duration metric.Float64Histogram
	items    metric.Int64Counter
	wakes    metric.Int64Counter
}

// NewMetrics returns the metrics of a meter.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	duration, errDuration := meter.Float64Histogram("tick.duration", metric.WithUnit("s"),
		metric.WithDescription("Of a tick, by function, cause (schedule, wake) and result (ok, failed)."))
	items, errItems := meter.Int64Counter("tick.items", metric.WithUnit("{item}"),
		metric.WithDescription("Rows and messages that ticks worked on, by function, source, cause and outcome: claimed, done, retried, dead, lost_lease."))
	wakes, errWakes := meter.Int64Counter("wake.sent", metric.WithUnit("{wake}"),
		metric.WithDescription("Wakes of a function, by result: taken, failed (its next tick finds the work)."))
	return &Metrics{duration, items, wakes}, errors.Join(errDuration, errItems, errWakes)
}

// causeWake marks a tick that a wake sent, for metrics only.
const causeWake = "wake"

func causeOf(r *http.Request) attribute.KeyValue {
	if r.URL.RawQuery == causeWake {
		return attribute.String("cause", causeWake)
	}
	return attribute.String("cause", "schedule")
}

func (m *Metrics) ticked(ctx context.Context, function string, cause attribute.KeyValue, took time.Duration, err error) {
	if m == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.duration.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("function", function), cause, attribute.String("result", result)))
}

func (m *Metrics) worked(ctx context.Context, function, source string, cause attribute.KeyValue, report lease.Report) {
	if m == nil || report == (lease.Report{More: report.More}) {
		return
	}
	for _, counted := range []struct {
		outcome string
		n       int
	}{
		{"claimed", report.Claimed}, {"done", report.Done}, {"retried", report.Retried}, {"dead", report.Dead}, {"lost_lease", report.LostLease},
	} {
		if counted.n > 0 {
			m.items.Add(ctx, int64(counted.n), metric.WithAttributes(
				attribute.String("function", function), attribute.String("source", source), cause, attribute.String("outcome", counted.outcome)))
		}
	}
}

func (m *Metrics) woke(ctx context.Context, function string, err error) {
	if m == nil {
		return
	}
	result := "taken"
	if err != nil {
		result = "failed"
	}
	m.wakes.Add(ctx, 1, metric.WithAttributes(attribute.String("function", function), attribute.String("result", result)))
}
