package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// W3C carries trace contexts in the headers traceparent and tracestate.
var W3C propagation.TraceContext

// scope is the tracer's name of spans that are made here.
const scope = "github.com/miniserversystem/miniserver"

// Untraced returns a context for a request that gets no span of its own. Its log lines
// have the trace id of its headers if continued, else a new one, and Batch can make spans
// of what it works on.
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

// Recorded returns the traceparent of ctx if its span is recorded, else otherwise.
func Recorded(ctx context.Context, otherwise string) string {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return otherwise
	}
	return Traceparent(ctx)
}

// Inject writes the trace context of ctx to h.
func Inject(ctx context.Context, h http.Header) { W3C.Inject(ctx, propagation.HeaderCarrier(h)) }

// Traceparent returns the W3C traceparent of ctx, or "".
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	W3C.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Batch is work on many messages at once. Each message has a span in the trace of the
// request that caused it. The batch has one in the trace of its first message, and links
// to the others. A message whose trace is not recorded has none, nor has a batch of only
// such messages.
type Batch struct {
	own   trace.Span
	spans []trace.Span // nil where a message has none
}

// BatchOf describes a batch.
type BatchOf struct {
	Operation string // "publish", "accept", "deliver"
	Of        string // what: a subject, a channel
	Kind      trace.SpanKind
	Messages  int // how many there are, if not one for each span
}

// StartBatch starts the spans of a batch of n messages. message returns the id of each,
// and the traceparent of the request that caused it, which may be empty. The context is
// for work on all of them.
func StartBatch(ctx context.Context, about BatchOf, n int, message func(int) (id, traceparent string)) (context.Context, *Batch) {
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
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx := W3C.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
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
