// Package telemetry has the logs, metrics and traces of the system: logs are JSON, one
// object a line, each with its trace id; metrics and traces are OpenTelemetry's.
package telemetry

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger writes JSON lines to w. level is debug, info, warn or error; anything
// else is info. JSON escapes control characters, so input stays on its line. LevelOf
// changes the level while the process runs.
func NewLogger(w io.Writer, level string) *slog.Logger {
	var l slog.LevelVar // info
	_ = l.UnmarshalText([]byte(level))
	return slog.New(traced{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: &l}), &l})
}

// LevelOf returns the level of a logger that NewLogger made, nil of any other.
func LevelOf(log *slog.Logger) *slog.LevelVar {
	handler, _ := log.Handler().(traced)
	return handler.level
}

// traced adds trace_id to records that are logged with a context.
type traced struct {
	slog.Handler
	level *slog.LevelVar
}

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traced{h.Handler.WithAttrs(attrs), h.level}
}

func (h traced) WithGroup(name string) slog.Handler {
	return traced{h.Handler.WithGroup(name), h.level}
}
