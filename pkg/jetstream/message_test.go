package jetstream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/rights"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The same event published again within the window is in the stream once.
func TestDeduplication(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := message("k")
	f.publish(m)
	f.publish(m, m, message("k"))
	s, err := f.js.Stream(t.Context(), streamName)
	kit.Must(t, err)
	info, err := s.Info(t.Context())
	kit.Must(t, err)
	if info.State.Msgs != 2 {
		t.Errorf("%d messages for 2 events, want 2", info.State.Msgs)
	}
}

func TestStreamAndConsumerConfiguration(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	f.fetch(1)
	s, err := f.js.Stream(t.Context(), streamName)
	kit.Must(t, err)
	c := s.CachedInfo().Config
	if c.Storage != natsjs.FileStorage || c.Discard != natsjs.DiscardNew || c.MaxAge != 7*24*time.Hour ||
		c.Duplicates != 2*time.Minute || c.Retention != natsjs.LimitsPolicy || c.MaxBytes != limits.MaxBytes || c.NoAck ||
		!slices.Equal(c.Subjects, []string{"entitlement.events"}) {
		t.Errorf("the stream is configured as %+v", c)
	}
	d := f.pending().Config
	if d.Durable != "notify" || d.AckPolicy != natsjs.AckExplicitPolicy || d.DeliverPolicy != natsjs.DeliverAllPolicy ||
		d.MaxDeliver != -1 || d.DeliverSubject != "" || d.InactiveThreshold != 0 {
		t.Errorf("the consumer is configured as %+v", d)
	}
}

// A stream that the operator made with other limits is left as it is.
func TestOperatorsStreamIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: streamName, Subjects: []string{"entitlement.events"}, MaxAge: time.Hour, MaxMsgs: 7})
	kit.Must(t, err)
	f.publish(message("k"))
	s, err := f.js.Stream(t.Context(), streamName)
	kit.Must(t, err)
	if c := s.CachedInfo().Config; c.MaxAge != time.Hour || c.MaxMsgs != 7 {
		t.Errorf("the operator's stream became %+v", c)
	}
}

// A message that only a foreign stream takes is not published: no consumer would get it.
func TestPublishIntoAForeignStream(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	kit.Must(t, f.js.DeleteStream(t.Context(), streamName))
	foreign := natsjs.StreamConfig{Name: "FOREIGN", Subjects: []string{"entitlement.>"}}
	_, err := f.js.CreateStream(t.Context(), foreign)
	kit.Must(t, err)
	if err := f.publisher.Publish(t.Context(), []event.Message{message("k")})[0]; !errors.Is(err, outbox.ErrBroker) {
		t.Errorf("a message that only a foreign stream took: %v, want ErrBroker", err)
	}
}

// A stream that cannot be made holds up its own subject only.
func TestForeignStreamHoldsUpItsSubjectOnly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "FOREIGN", Subjects: []string{"matchmaking.>"}})
	kit.Must(t, err)
	if err := jetstream.NewPublisher(f.client, event.MatchmakingSubject).Ready(t.Context()); err == nil {
		t.Fatal("the subject of the foreign stream is ready, so this test shows nothing")
	}
	kit.Must(t, f.publisher.Ready(t.Context()))
	f.publish(message("k"))
	f.fetch(1)
}

// An acknowledgement that never comes holds up Publish for seconds, not for a lease.
func TestLostPublishAcknowledgement(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	// A plain subscriber takes the messages and acknowledges none.
	kit.Must(t, f.js.DeleteStream(t.Context(), streamName))
	silent, err := f.js.Conn().SubscribeSync("entitlement.events")
	kit.Must(t, err)
	kit.Must(t, f.js.Conn().Flush())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := f.publisher.Publish(ctx, []event.Message{message("k")})[0]; !errors.Is(err, outbox.ErrBroker) || ctx.Err() != nil {
		t.Errorf("%v, context: %v; want ErrBroker before the context ends", err, ctx.Err())
	}
	if n, _, _ := silent.Pending(); n != 1 {
		t.Errorf("%d messages were sent, want 1, so this test shows nothing", n)
	}
}

var _ outbox.Publisher = (*jetstream.Publisher)(nil)

// JetStream does not answer the request to create a stream, as when a right is missing:
// that holds up no other subject meanwhile.
func TestSilenceHoldsUpItsSubjectOnly(t *testing.T) {
	t.Parallel()
	user := rights.Rights{Publishes: []string{event.EntitlementSubject}}
	client := jetstream.New(kit.NATS(t, map[string]rights.Rights{"relay": user}).URLAs("relay"), "test", limits)
	t.Cleanup(client.Close)
	silent := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kit.Must(t, jetstream.NewPublisher(client, event.EntitlementSubject).Ready(ctx)) // connected
	go func() { silent <- jetstream.NewPublisher(client, event.MatchmakingSubject).Ready(ctx) }()
	for range 20 {
		if err := jetstream.NewPublisher(client, event.EntitlementSubject).Publish(ctx, []event.Message{message("k")})[0]; err != nil {
			t.Fatalf("publishing beside a stream that JetStream does not answer for: %v", err)
		}
		kit.Must(t, client.Ready(ctx))
	}
	select {
	case err := <-silent:
		t.Errorf("JetStream answered for the other stream: %v, so this test shows nothing", err)
	default:
	}
	cancel()
	if err := <-silent; err == nil {
		t.Error("a stream that cannot be created is ready")
	}
}
