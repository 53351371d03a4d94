package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// Metrics are the process's instruments, read by Prometheus at an address of their
// own: GET /metrics, and profiles under /debug/pprof/.
//
// Names are written with underscores for dots, then the unit ("s" is _seconds, "By"
// is _bytes; {anything} is none), then _total for a counter, each once:
// mm.queue.oldest_age in "s" is mm_queue_oldest_age_seconds, and both mm.match and
// mm.match.total are mm_match_total. The name of the Meter is not written, so a name
// belongs to one Meter.
type Metrics struct {
	provider *sdk.MeterProvider
	registry *prometheus.Registry

	mutex   sync.Mutex   // Listen and Close may run at the same time
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
	metricsStopTimeout  = time.Second
)

// seconds are the bounds of histograms in "s": 1 ms to 2 min. They override an
// instrument's own bounds, because views have precedence in the SDK.
var seconds = []float64{.001, .0025, .005, .01, .015, .025, .04, .075, .15, .3, .6, 1, 2.5, 5, 10, 20, 40, 80, 120}

// NewMetrics returns metrics with those of the Go runtime and of the process.
func NewMetrics() (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Without otel_scope_*, which would be in every series and repeats the name, and
	// without target_info: Prometheus adds job and instance itself.
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	durations := sdk.NewView(sdk.Instrument{Kind: sdk.InstrumentKindHistogram, Unit: "s"},
		sdk.Stream{Aggregation: sdk.AggregationExplicitBucketHistogram{Boundaries: seconds}})
	provider := sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(durations), sdk.WithCardinalityLimit(maxSeries))
	return &Metrics{provider: provider, registry: registry}, nil
}

// MeasureTimeout bounds an instrument's query of a store: the SDK gives its callbacks no
// deadline, and all metrics wait for each of them.
const MeasureTimeout = 2 * time.Second

// Meter returns the factory of instruments.
func (m *Metrics) Meter(name string) metric.Meter { return m.provider.Meter(name) }

// Handler answers /metrics and /debug/pprof/, and 404 to the rest. It is for an
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
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
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
// ending process. Later counts are lost.
func (m *Metrics) Close() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), metricsStopTimeout)
	defer cancel()
	var err error
	if m.server != nil {
		err = m.server.Close()
		// A server that is closed before it began to serve closes the listener then.
		m.serving.Wait()
	}
	return errors.Join(err, m.provider.Shutdown(ctx))
}
