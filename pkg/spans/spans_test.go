package spans_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/spans"
)

// Two traces in one batch: each message is in its own, the batch in the first one's, and
// links lead from one to the other. A message without a recorded trace has no span. What
// counts as a traceparent is what OpenTelemetry's propagator takes.
func TestBatch(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	ctx, tick := provider.Tracer("test").Start(t.Context(), "tick")
	const one, other = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"
	messages := []string{
		"", "00-" + one + "-b7ad6b7169203331-00", "ff-" + one + "-b7ad6b7169203331-01", "00-" + one + "-b7ad6b7169203331", "00-x-y-01",
		"00-" + one + "-0000000000000000-01", "zz-" + one + "-b7ad6b7169203331-01", "00-" + one + "-B7AD6B7169203331-01",
		"00-" + one + "-b7ad6b7169203331-01", "00-" + other + "-c7ad6b7169203331-01", "00-" + one + "-d7ad6b7169203331-01",
	}
	_, batch := spans.Start(ctx, spans.About{Operation: "publish", Of: "things", Kind: trace.SpanKindProducer}, len(messages),
		func(i int) (id, traceparent string) { return "m", messages[i] })
	var recorded int
	for i, message := range messages {
		carrier := propagation.MapCarrier{"traceparent": message}
		taken := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier)).IsSampled()
		span := trace.SpanContextFromContext(batch.Context(ctx, i))
		if got := span.TraceID() != tick.SpanContext().TraceID(); got != taken {
			t.Errorf("%q has a span: %v, want %v", message, got, taken)
		}
		if taken {
			recorded++
		}
	}
	batch.Ended(len(messages)-1, errors.New("refused"))
	batch.End()
	ended := recorder.Ended()
	if recorded != 3 || len(ended) != recorded+1 {
		t.Fatalf("%d messages and %d spans, want 3 and one more for the batch", recorded, len(ended))
	}
	own := ended[recorded]
	if own.SpanContext().TraceID().String() != one || len(own.Links()) != 2 {
		t.Errorf("the batch is in %s with %d links, want %s and links to the other two", own.SpanContext().TraceID(), len(own.Links()), one)
	}
	linked := ended[1]
	if linked.SpanContext().TraceID().String() != other || len(linked.Links()) != 1 || linked.Links()[0].SpanContext.SpanID() != own.SpanContext().SpanID() {
		t.Errorf("the message of the other trace is %+v, want it there with a link to the batch", linked)
	}
	if ended[2].Status().Description != "refused" {
		t.Errorf("the failed message has the status %+v, want its error", ended[2].Status())
	}
}

// What counts as a traceparent is one to OpenTelemetry's propagator, too, and of the same trace.
func FuzzTraceparent(f *testing.F) {
	const of = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for _, text := range []string{"", "00-" + of + "-01", "00-" + of + "-00", "00-" + of + "-03", "00-" + of + "-04", "00-" + of + "-0B", "00-" + of + "-+1", "01-" + of + "-01", "00-" + of + "-01-x"} {
		f.Add(text)
	}
	tick, _ := sdk.NewTracerProvider().Tracer("test").Start(context.Background(), "tick")
	f.Fuzz(func(t *testing.T, text string) {
		ctx, batch := spans.Start(tick, spans.About{}, 1, func(int) (id, traceparent string) { return "", text })
		defer batch.End()
		got := trace.SpanContextFromContext(ctx).TraceID()
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text}))
		if got != trace.SpanContextFromContext(tick).TraceID() && (got != want.TraceID() || !want.IsSampled()) {
			t.Errorf("%q is of trace %s, want %v", text, got, want)
		}
	})
}
