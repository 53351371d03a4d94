// Package telemetry has the logs and metrics of the system: structured logs, one JSON
// object a line, each with its trace id.
package telemetry

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// NewLogger writes JSON lines to w. level is debug, info, warn or error; anything
// else is info. JSON escapes control characters, so input stays on its line.
func NewLogger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(traced{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})})
}

// traced adds trace_id to records that are logged with a context.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }

var w3c propagation.TraceContext

// FromRequest returns the request's context with its W3C trace context, or a new one if
// that is missing or broken.
func FromRequest(r *http.Request) context.Context {
	ctx := w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	var config trace.SpanContextConfig
	_, _ = rand.Read(config.TraceID[:]) // never fails
	_, _ = rand.Read(config.SpanID[:])
	config.TraceFlags = trace.FlagsSampled
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(config))
}

// Inject writes the trace context of ctx to h.
func Inject(ctx context.Context, h http.Header) { w3c.Inject(ctx, propagation.HeaderCarrier(h)) }

// Traceparent returns the W3C traceparent of ctx, or "".
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier["traceparent"]
}
