package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Tracing makes a process's spans and sends them to the collector that the settings
// name, in batches and in the background: a collector that is away or slow delays
// nothing, and spans that do not fit in the queue are dropped.
type Tracing struct{ provider *sdk.TracerProvider }

// NewTracing returns nil where the settings name no collector. instance names this
// process.
func NewTracing(s settings.Settings, instance string) (*Tracing, error) {
	if s.TracesURL() == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(s.TracesURL()))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := describe(s, instance)
	if err != nil {
		return nil, err
	}
	return &Tracing{sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithSampler(samplerOf(s)), sdk.WithResource(about))}, nil
}

// describe names the process in its traces and metrics.
func describe(s settings.Settings, instance string) (*resource.Resource, error) {
	name := s.ServiceName
	if s.Function != "" {
		name += "-" + s.Function
	}
	about, err := resource.New(context.Background(),
		resource.WithTelemetrySDK(), resource.WithFromEnv(),
		resource.WithAttributes(semconv.ServiceName(name), semconv.ServiceInstanceID(instance)))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return about, nil
}

func samplerOf(s settings.Settings) sdk.Sampler {
	kind, follows := strings.CutPrefix(s.TracesSampler, settings.ParentBased)
	sampler := sdk.AlwaysSample()
	switch kind {
	case settings.AlwaysOff:
		sampler = sdk.NeverSample()
	case settings.Ratio:
		sampler = sdk.TraceIDRatioBased(s.TracesRatio())
	}
	if follows {
		return sdk.ParentBased(sampler)
	}
	return sampler
}

// Provider returns the factory of tracers. It is safe on nil, which makes spans that
// nobody sees, at no cost.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return noop.NewTracerProvider()
	}
	return t.provider
}

// Flush sends the spans that have ended. A platform may freeze the process after it.
func (t *Tracing) Flush(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.ForceFlush(ctx)
}

// Close sends the spans that have ended; later ones are lost.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

const (
	warnEvery = 10 * time.Minute
	// maxWarnings bounds the kinds of faults that are told apart.
	maxWarnings = 16
)

// LogErrors logs OpenTelemetry's own faults: a collector that is away, a metric that
// could not be read. Each kind is logged once in ten minutes. The SDK has one handler for
// the process, and without it prints to standard error.
func LogErrors(log *slog.Logger) {
	var mutex sync.Mutex
	warned := map[string]time.Time{}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		kind, _, _ := strings.Cut(err.Error(), ":")
		mutex.Lock()
		last, known := warned[kind]
		if len(warned) >= maxWarnings && !known {
			kind = ""
			last = warned[kind]
		}
		silent := time.Since(last) < warnEvery
		if !silent {
			warned[kind] = time.Now()
		}
		mutex.Unlock()
		if !silent {
			log.Warn("telemetry is incomplete", "error", err.Error())
		}
	}))
}
