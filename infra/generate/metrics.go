package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// metricsPage renders the instruments of all functions as docs/metrics.md.
func metricsPage() ([]byte, error) {
	instruments, err := instruments()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(`# Metrics

With ` + "`METRICS_ADDRESS`" + ` set, a process answers ` + "`GET /metrics`" + ` there, in the Prometheus
format; with ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + ` it sends the same to a collector. Each process
counts what it did itself, so sum counters over processes. Gauges that are read from
Postgres or a broker are the same in each process that has them: take the maximum.
Histograms of seconds have buckets from 1 ms to 2 min. An instrument has 500 series at
most; the rest is counted in one with ` + "`otel_metric_overflow=\"true\"`" + `.

This page is generated from the instruments that the functions make; change it there.
The Go runtime's and the process's own metrics (` + "`go_`, `process_`" + `) come on top.

| Prometheus | OpenTelemetry | type | what |
|---|---|---|---|
`)
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	for _, i := range instruments {
		kind, name := kindOf(i.Kind)
		prometheus, err := namer.Build(otlptranslator.Metric{Name: i.Name, Unit: i.Unit, Type: kind})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s | %s |\n", prometheus, i.Name, name, strings.ReplaceAll(i.Description, "|", `\|`))
	}
	return out.Bytes(), nil
}

// instruments returns those of a process with all functions, each once, by name. It
// connects to nothing.
func instruments() ([]metric.Instrument, error) {
	s, err := settings.LoadFrom(map[string]string{
		"METRICS_ADDRESS": "127.0.0.1:0", "DATABASE_URL": "postgres://127.0.0.1/none", "REDIS_URL": "redis://127.0.0.1",
		"NATS_URL": "nats://127.0.0.1", "OIDC_ISSUER": "http://127.0.0.1",
	})
	if err != nil {
		return nil, err
	}
	if s.IdentitySigningKey, s.IdentityVerifyKeys, err = auth.NewKeyPair(); err != nil {
		return nil, err
	}
	rt := fn.NewRuntime(s, slog.New(slog.DiscardHandler), functions.All)
	if _, err := functions.Together(rt); err != nil {
		return nil, err
	}
	metrics, err := rt.Metrics()
	if err != nil {
		return nil, err
	}
	made := slices.DeleteFunc(metrics.Instruments(), func(i metric.Instrument) bool { return strings.HasSuffix(i.Name, ".body.size") })
	slices.SortFunc(made, func(a, b metric.Instrument) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(made, func(a, b metric.Instrument) bool { return a.Name == b.Name }), nil
}

func kindOf(kind metric.InstrumentKind) (otlptranslator.MetricType, string) {
	switch kind {
	case metric.InstrumentKindCounter, metric.InstrumentKindObservableCounter:
		return otlptranslator.MetricTypeMonotonicCounter, "counter"
	case metric.InstrumentKindHistogram:
		return otlptranslator.MetricTypeHistogram, "histogram"
	case metric.InstrumentKindUpDownCounter, metric.InstrumentKindObservableUpDownCounter:
		return otlptranslator.MetricTypeNonMonotonicCounter, "gauge"
	}
	return otlptranslator.MetricTypeGauge, "gauge"
}
