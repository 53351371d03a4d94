package telemetry

import (
	"context"
	"crypto/rand"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// W3C carries trace contexts in the headers traceparent and tracestate.
var W3C propagation.TraceContext

// Untraced returns a context for a request that gets no span of its own. Its log lines
// have the trace id of its headers if continued, else a new one, and spans.Start
// can make some of what it works on.
func Untraced(r *http.Request, provider trace.TracerProvider, continued bool) context.Context {
	ctx := r.Context()
	if continued {
		ctx = W3C.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	span := untraced{provider: provider, context: trace.SpanContextFromContext(ctx)}
	if !span.context.IsValid() {
		var config trace.SpanContextConfig
		_, _ = rand.Read(config.TraceID[:]) // never fails
		_, _ = rand.Read(config.SpanID[:])
		span.context = trace.NewSpanContext(config)
	}
	return trace.ContextWithSpan(ctx, span)
}

// untraced is a span that records nothing.
type untraced struct {
	noop.Span
	context  trace.SpanContext
	provider trace.TracerProvider
}

func (s untraced) SpanContext() trace.SpanContext       { return s.context }
func (s untraced) TracerProvider() trace.TracerProvider { return s.provider }

// Inject writes the trace context of ctx to h.
func Inject(ctx context.Context, h http.Header) { W3C.Inject(ctx, propagation.HeaderCarrier(h)) }
