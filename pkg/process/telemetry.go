package process

import (
	"context"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// lastExport bounds how long a process that ends waits for the collector.
const lastExport = 3 * time.Second

// Metered reports whether anybody reads this process's metrics.
func (p *Process) Metered() bool {
	return p.Settings.MetricsAddress != "" || p.Settings.MetricsURL() != ""
}

// Traced reports whether this process sends traces.
func (p *Process) Traced() bool { return p.Settings.TracesURL() != "" }

// Meter returns where instruments are made. They count nothing, at no cost, where
// nobody reads them.
func (p *Process) Meter(name string) (metric.Meter, error) {
	provider, err := p.MeterProvider()
	if err != nil {
		return nil, err
	}
	return provider.Meter(name), nil
}

// MeterProvider is Meter for libraries.
func (p *Process) MeterProvider() (metric.MeterProvider, error) {
	if !p.Metered() {
		return noop.NewMeterProvider(), nil
	}
	metrics, err := p.metrics()
	if err != nil {
		return nil, err
	}
	return metrics.Provider(), nil
}

// Metrics returns the metrics, which it makes on first use.
func (p *Process) Metrics() (*telemetry.Metrics, error) { return p.metrics() }

// TracerProvider makes spans, which nobody sees where the process sends none.
func (p *Process) TracerProvider() (trace.TracerProvider, error) {
	tracing, err := p.tracing()
	return tracing.Provider(), err
}

// Flush sends the spans that have ended, before a platform freezes the process.
func (p *Process) Flush(ctx context.Context) error {
	tracing, err := p.tracing()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lastExport)
	defer cancel()
	return tracing.Flush(ctx)
}

// closeTelemetry sends what is left.
func (p *Process) closeTelemetry() {
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	tracing, err := p.tracing()
	if err == nil {
		err = tracing.Close(ctx)
	}
	if err != nil {
		p.Log.Warn("the last traces were not sent", "error", err.Error())
	}
	if !p.Metered() {
		return
	}
	metrics, err := p.metrics()
	if err == nil {
		err = metrics.Close(ctx)
	}
	if err != nil {
		p.Log.Warn("the last metrics were not sent", "error", err.Error())
	}
}

// observePool measures a pool, which may be that of several domains.
func (p *Process) observePool(pool *pgxpool.Pool, domain string) error {
	if !p.Metered() {
		return nil
	}
	provider, err := p.MeterProvider()
	if err != nil {
		return err
	}
	return otelpgx.RecordStats(pool, otelpgx.WithStatsMeterProvider(provider),
		otelpgx.WithStatsAttributes(attribute.String("db.client.connection.pool.name", domain)))
}

// statements returns what makes a span of each SQL statement, nil without traces.
func (p *Process) statements() (pgx.QueryTracer, error) {
	if !p.Traced() {
		return nil, nil
	}
	traces, err := p.TracerProvider()
	if err != nil {
		return nil, err
	}
	return otelpgx.NewTracer(otelpgx.WithTracerProvider(traces), otelpgx.WithMeterProvider(noop.NewMeterProvider()),
		otelpgx.WithDisableConnectionDetailsInAttributes(), otelpgx.WithDisableAcquireTracer()), nil
}

// observeRedis makes spans of commands, without their arguments: those hold sessions and
// tokens.
func (p *Process) observeRedis(client redis.UniversalClient, setting string) error {
	if p.Traced() {
		traces, err := p.TracerProvider()
		if err != nil {
			return err
		}
		err = redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(traces),
			redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false), redisotel.WithDialFilter(true))
		if err != nil {
			return err
		}
	}
	if !p.Metered() {
		return nil
	}
	meters, err := p.MeterProvider()
	if err != nil {
		return err
	}
	return redisotel.InstrumentMetrics(client, redisotel.WithMeterProvider(meters), redisotel.WithPoolName(setting), redisotel.WithSemConvCompliantMetrics(true))
}
