package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Metrics are the process's instruments, read by Prometheus at an address of their
// own: GET /metrics, and profiles under /debug/pprof/. They are also sent to the
// collector that the settings name, if any.
//
// Names are written with underscores for dots, then the unit ("s" is _seconds, "By"
// is _bytes; {anything} is none), then _total for a counter, each once:
// mm.queue.oldest_age in "s" is mm_queue_oldest_age_seconds, and both mm.match and
// mm.match.total are mm_match_total. The name of the Meter is not written, so a name
// belongs to one Meter.
type Metrics struct {
	provider *sdk.MeterProvider
	registry *prometheus.Registry
	level    *slog.LevelVar // of the log; nil if it cannot be changed

	mutex   sync.Mutex // Listen and Close may run at the same time
	made    []sdk.Instrument
	server  *http.Server // nil before Listen
	serving sync.WaitGroup
}

const (
	// maxSeries bounds the series of an instrument, including the one with
	// otel_metric_overflow="true", which counts all further labels.
	maxSeries = 500

	metricsReadTimeout = 5 * time.Second
	// metricsWriteTimeout is for an answer; net/http/pprof adds the seconds that a
	// profile was asked to take.
	metricsWriteTimeout = 30 * time.Second
	metricsIdleTimeout  = 2 * time.Minute // more than the usual pause between scrapes
	metricsHeaderBytes  = 16 << 10
	maxScrapes          = 4 // at once; more are answered 503
)

// seconds are the bounds of histograms in "s": 1 ms to 2 min. They override an
// instrument's own bounds, because views have precedence in the SDK.
var seconds = []float64{.001, .0025, .005, .01, .015, .025, .04, .075, .15, .3, .6, 1, 2.5, 5, 10, 20, 40, 80, 120}

// requestLabels are those of otelhttp that no caller can make up.
var requestLabels = attribute.NewAllowKeysFilter("faas.name", "http.route", "http.request.method", "http.response.status_code")

// NewMetrics returns metrics with those of the Go runtime and of the process, which
// instance names. level is that of the process's log, or nil.
func NewMetrics(s settings.Settings, instance string, level *slog.LevelVar) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Without otel_scope_*, which would be in every series and repeats the name, and
	// without target_info: Prometheus adds job and instance itself.
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	about, err := describe(s, instance)
	if err != nil {
		return nil, err
	}
	m := &Metrics{registry: registry, level: level}
	options := []sdk.Option{sdk.WithReader(reader), sdk.WithView(m.view), sdk.WithCardinalityLimit(maxSeries), sdk.WithResource(about)}
	if s.MetricsURL() != "" {
		sender, err := otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithEndpointURL(s.MetricsURL()))
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		options = append(options, sdk.WithReader(sdk.NewPeriodicReader(sender)))
	}
	m.provider = sdk.NewMeterProvider(options...)
	return m, nil
}

// view gives histograms of seconds our bounds, and requests our labels.
func (m *Metrics) view(i sdk.Instrument) (sdk.Stream, bool) {
	m.mutex.Lock()
	m.made = append(m.made, i)
	m.mutex.Unlock()
	stream := sdk.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit}
	if i.Name == "http.server.request.body.size" || i.Name == "http.server.response.body.size" {
		stream.Aggregation = sdk.AggregationDrop{}
		return stream, true
	}
	if i.Name == "http.server.request.duration" {
		stream.AttributeFilter = requestLabels
	}
	if i.Kind != sdk.InstrumentKindHistogram || i.Unit != "s" {
		return stream, false
	}
	stream.Aggregation = sdk.AggregationExplicitBucketHistogram{Boundaries: seconds}
	return stream, true
}

// MeasureTimeout bounds a query of a store by Measure.
const MeasureTimeout = 2 * time.Second

// Measure calls do each time that metrics are read. The SDK gives its callbacks no
// deadline, and all metrics wait for each of them; do has MeasureTimeout.
func Measure(meter metric.Meter, do metric.Callback, instruments ...metric.Observable) error {
	_, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, MeasureTimeout)
		defer cancel()
		return do(ctx, o)
	}, instruments...)
	return err
}

// Provider returns the factory of meters.
func (m *Metrics) Provider() metric.MeterProvider { return m.provider }

// Instruments returns those that were made, with or without a value yet.
func (m *Metrics) Instruments() []sdk.Instrument {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.made)
}

// Handler answers /metrics, /log-level and /debug/pprof/, and 404 to the rest. It is for an
// address that the public does not reach: profiles show the command line and slow
// the process down. (Importing net/http/pprof also fills http.DefaultServeMux;
// nothing may serve that.)
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes,
		// Two instruments with one name spoil only themselves, and are counted by
		// promhttp_metric_handler_errors_total.
		ErrorHandling: promhttp.ContinueOnError,
		Registry:      m.registry,
	}))
	mux.HandleFunc("GET /log-level", m.getLevel)
	mux.HandleFunc("PUT /log-level", m.putLevel)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func (m *Metrics) getLevel(w http.ResponseWriter, _ *http.Request) {
	if m.level == nil {
		http.Error(w, "this log has one level", http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, strings.ToLower(m.level.Level().String()))
}

// putLevel changes what is logged, until the process ends.
func (m *Metrics) putLevel(w http.ResponseWriter, r *http.Request) {
	const most = 16
	text, err := io.ReadAll(io.LimitReader(r.Body, most))
	var level slog.Level
	if err == nil {
		err = level.UnmarshalText(bytes.TrimSpace(text))
	}
	if err != nil {
		http.Error(w, "send debug, info, warn or error", http.StatusBadRequest)
		return
	}
	if m.level != nil {
		m.level.Set(level)
	}
	m.getLevel(w, r)
}

// Listen begins to serve at address (host:port) and returns the actual address: port 0 is
// any free one. It is called once; Close ends it.
func (m *Metrics) Listen(address string) (net.Addr, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.server != nil {
		return nil, fmt.Errorf("METRICS_ADDRESS %s: metrics are listened on already", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("METRICS_ADDRESS %s: %w", address, err)
	}
	server := &http.Server{
		Handler:        m.Handler(),
		ReadTimeout:    metricsReadTimeout,
		WriteTimeout:   metricsWriteTimeout,
		IdleTimeout:    metricsIdleTimeout,
		MaxHeaderBytes: metricsHeaderBytes,
	}
	m.server = server
	m.serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	return listener.Addr(), nil
}

// Close stops listening and aborts answers in progress: nobody needs a profile of an
// ending process. Then it sends the metrics a last time. Later counts are lost.
func (m *Metrics) Close(ctx context.Context) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var err error
	if m.server != nil {
		err = m.server.Close()
		// A server that is closed before it began to serve closes the listener then.
		m.serving.Wait()
	}
	return errors.Join(err, m.provider.Shutdown(ctx))
}
