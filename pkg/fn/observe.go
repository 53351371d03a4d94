package fn

import (
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	otel "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// observe gives each request a span and counts it, where the settings ask for either.
//
// A tick gets neither: most find nothing. The batches that it works on have spans
// (spans.Start), and ticks have metrics of their own (tick.Metrics).
func (e *Env) observe(next http.Handler) (http.Handler, error) {
	traces, err := e.rt.TracerProvider()
	if err != nil {
		return nil, err
	}
	meters, err := e.rt.MeterProvider()
	if err != nil {
		return nil, err
	}
	untraced := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(telemetry.Untraced(r, traces, e.continues(r))))
		})
	}
	if e.Function.Schedule > 0 || !e.rt.Traced() && !e.rt.Metered() {
		return untraced(next), nil
	}
	name := attribute.String("faas.name", e.Function.Name)
	options := []otelhttp.Option{
		otelhttp.WithTracerProvider(traces), otelhttp.WithMeterProvider(meters),
		otelhttp.WithFilter(func(r *http.Request) bool { return !isProbe(r.URL.Path) }),
		otelhttp.WithSpanOptions(trace.WithAttributes(name)),
	}
	if e.rt.Traced() {
		options = append(options, otelhttp.WithPropagators(telemetry.W3C),
			otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return !e.continues(r) }))
	} else { // untraced reads the headers
		options = append(options, otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()))
	}
	measured := otelhttp.NewHandler(next, e.Function.Name, options...)
	observed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A new one: in one process the context of the gateway's request comes along.
		labels := &otelhttp.Labeler{}
		labels.Add(name)
		measured.ServeHTTP(w, r.WithContext(otelhttp.ContextWithLabeler(r.Context(), labels)))
	})
	if !e.rt.Traced() {
		return untraced(observed), nil
	}
	return observed, nil
}

// continues reports whether the trace that a request names goes on here.
func (e *Env) continues(r *http.Request) bool {
	return e.ContinuesTrace == nil || r.Header.Get("Traceparent") != "" && e.ContinuesTrace(r)
}

// calls gives each call of another function a span, where traces are sent.
func (e *Env) calls(transport http.RoundTripper) (http.RoundTripper, error) {
	if !e.rt.Traced() {
		return transport, nil
	}
	traces, err := e.rt.TracerProvider()
	if err != nil {
		return nil, err
	}
	return called{transport, traces.Tracer(scope)}, nil
}

// scope is the tracer's name of calls.
const scope = "github.com/miniserversystem/miniserver/pkg/fn"

func startCall(ctx context.Context, tracer trace.Tracer, function string) (context.Context, trace.Span) {
	return tracer.Start(ctx, "call "+function, trace.WithSpanKind(trace.SpanKindClient))
}

// called is not otelhttp's transport, whose spans have the URL with its query.
type called struct {
	http.RoundTripper
	tracer trace.Tracer
}

func (c called) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := startCall(r.Context(), c.tracer, r.URL.Host)
	defer span.End()
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	telemetry.Inject(ctx, r.Header)
	response, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		span.SetStatus(otel.Error, err.Error())
	}
	return response, err
}
