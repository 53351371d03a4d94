// Package spans makes the spans of work that no request waits for: events on their way,
// in batches. Requests have theirs from pkg/telemetry.
package spans

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope is the tracer's name.
const scope = "github.com/miniserversystem/miniserver/pkg/spans"

// traceparentParts are version, trace id, span id and flags (W3C Trace Context). The
// propagator of OpenTelemetry would make every domain import net/http.
const traceparentParts = 4

// Traceparent returns the W3C traceparent of ctx, or "".
func Traceparent(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%s", span.TraceID(), span.SpanID(), span.TraceFlags()&trace.FlagsSampled)
}

// Recorded returns the traceparent of ctx if its span is recorded, else otherwise.
func Recorded(ctx context.Context, otherwise string) string {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return otherwise
	}
	return Traceparent(ctx)
}

// Batch is work on many messages at once. Each message has a span in the trace of the
// request that caused it. The batch has one in the trace of its first message, and links
// to the others. A message whose trace is not recorded has none, nor has a batch of only
// such messages.
type Batch struct {
	own   trace.Span
	spans []trace.Span // nil where a message has none
}

// About describes a batch.
type About struct {
	Operation string // "publish", "accept", "deliver"
	Of        string // what: a subject, a channel
	Kind      trace.SpanKind
	Messages  int // how many there are, if not one for each span
}

// Start starts the spans of a batch of n messages. message returns the id of each,
// and the traceparent of the request that caused it, which may be empty. The context is
// for work on all of them.
func Start(ctx context.Context, about About, n int, message func(int) (id, traceparent string)) (context.Context, *Batch) {
	b := &Batch{own: noop.Span{}}
	provider := trace.SpanFromContext(ctx).TracerProvider()
	if _, off := provider.(noop.TracerProvider); off {
		return ctx, b
	}
	var links []trace.Link
	causes := make([]trace.SpanContext, n)
	for i := range causes {
		_, traceparent := message(i)
		causes[i] = parse(traceparent)
		if causes[i].IsSampled() {
			links = append(links, trace.Link{SpanContext: causes[i]})
		}
	}
	if len(links) == 0 {
		return ctx, b
	}
	tracer, first := provider.Tracer(scope), links[0].SpanContext
	ctx, b.own = tracer.Start(trace.ContextWithRemoteSpanContext(ctx, first), about.Operation+" batch", trace.WithLinks(links[1:]...),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", cmp.Or(about.Messages, n))))
	b.spans = make([]trace.Span, n)
	for i := range b.spans {
		if !causes[i].IsSampled() {
			continue
		}
		id, _ := message(i)
		of, options := ctx, []trace.SpanStartOption{
			trace.WithSpanKind(about.Kind), trace.WithAttributes(attribute.String("messaging.message.id", id)),
		}
		if causes[i].TraceID() != first.TraceID() {
			of = trace.ContextWithRemoteSpanContext(ctx, causes[i])
			options = append(options, trace.WithLinks(trace.LinkFromContext(ctx)))
		}
		_, b.spans[i] = tracer.Start(of, about.Operation+" "+about.Of, options...)
	}
	return ctx, b
}

// parse returns the context that a traceparent names, an invalid one if it is broken.
func parse(traceparent string) trace.SpanContext {
	parts := strings.Split(traceparent, "-")
	if len(parts) != traceparentParts || parts[0] != "00" || len(parts[3]) != 2 {
		return trace.SpanContext{} // ours are of version 00
	}
	traceID, errTrace := trace.TraceIDFromHex(parts[1])
	spanID, errSpan := trace.SpanIDFromHex(parts[2])
	flags, errFlags := strconv.ParseUint(parts[3], 16, 8)
	if errTrace != nil || errSpan != nil || errFlags != nil || flags > uint64(trace.FlagsSampled|trace.FlagsRandom) {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, Remote: true,
	})
}

// Context returns ctx for work on message i alone.
func (b *Batch) Context(ctx context.Context, i int) context.Context {
	if b.spans == nil || b.spans[i] == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, b.spans[i])
}

// Ended says why message i failed, if it did.
func (b *Batch) Ended(i int, failed error) {
	if failed != nil && b.spans != nil && b.spans[i] != nil {
		b.spans[i].SetStatus(codes.Error, failed.Error())
	}
}

// End ends all spans. Call it when what Ended said is recorded.
func (b *Batch) End() {
	for _, span := range b.spans {
		if span != nil {
			span.End()
		}
	}
	b.own.End()
}
