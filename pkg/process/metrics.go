package process

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// Meter returns where instruments are made. Without METRICS_ADDRESS they count
// nothing, at no cost.
func (p *Process) Meter(name string) (metric.Meter, error) {
	if p.Settings.MetricsAddress == "" {
		return noop.NewMeterProvider().Meter(name), nil
	}
	metrics, err := p.Metrics()
	if err != nil {
		return nil, err
	}
	return metrics.Meter(name), nil
}

// Metrics returns the metrics, which it makes on first use.
func (p *Process) Metrics() (*telemetry.Metrics, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.metrics != nil {
		return p.metrics, nil
	}
	metrics, err := telemetry.NewMetrics()
	if err != nil {
		return nil, err
	}
	p.metrics = metrics
	// The SDK has one handler for the process, and without it prints to standard error.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.Log.Warn("a metric was not read", "error", err.Error()) }))
	return metrics, nil
}
