package rabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	rabbitmqserver "github.com/miniserversystem/miniserver/infra/dev/rabbitmq"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/test/kit"
)

// All faults hit one broker, one after the other: a start costs seconds of processor time.
func TestFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker := kit.MustRabbitMQ(dir)
	t.Cleanup(func() { kit.Must(t, broker.Stop()) })
	start := func() { broker = kit.MustRabbitMQ(dir) }
	t.Run("hangs", func(t *testing.T) { hangs(t, broker) })
	t.Run("is full", func(t *testing.T) { full(t, broker) })
	// One queue for both, which the stop makes durable: a node that is killed in the first
	// seconds of a queue may forget a classic one, and leaves a quorum one without a leader
	// for ever (rabbitmq/rabbitmq-server#10070).
	f := setup(t, broker.URL(), rabbitmq.Classic)
	t.Run("is stopped", func(t *testing.T) { f.T = t; restart(f, broker, (*rabbitmqserver.Server).Stop, start) })
	t.Run("is killed", func(t *testing.T) { f.T = t; restart(f, broker, (*rabbitmqserver.Server).Kill, start) })
}

// The broker is stopped or killed, and comes back: confirmed messages are there, and
// publisher and consumer reconnect by themselves.
func restart(f fixture, broker *rabbitmqserver.Server, end func(*rabbitmqserver.Server) error, start func()) {
	t := f.T
	f.publish(f.messages(50)...)
	unacked := f.fetch(50)
	kit.Must(t, unacked[0].Ack())
	f.publish(f.messages(10)...)
	kit.Must(t, end(broker))
	if err := f.publisher.Ready(t.Context()); err == nil {
		t.Error("the publisher is ready without a broker")
	}
	for _, err := range f.publisher.Publish(t.Context(), f.messages(2)) {
		if !errors.Is(err, outbox.ErrBroker) {
			t.Errorf("publishing without a broker: %v, want ErrBroker", err)
		}
	}
	if _, err := f.consumer.Fetch(t.Context(), 1); fault.Of(err) != fault.Unavailable {
		t.Errorf("fetching without a broker: %v, want Unavailable", err)
	}
	if err := unacked[1].Ack(); err == nil {
		t.Error("a message was acknowledged without a broker")
	}
	start()
	kit.Must(t, f.publisher.Ready(t.Context()))
	// The broker answers before its queue takes messages: on a busy machine more than a
	// minute before.
	one := f.messages(1)
	var refused error
	defer func() {
		if refused != nil {
			t.Log("the queue takes no message: ", refused)
		}
	}()
	kit.Within(f, 3*time.Minute, "the queue takes a message", func() bool {
		refused = f.publisher.Publish(t.Context(), one)[0]
		return refused == nil
	})
	left := map[string]bool{}
	kit.Eventually(f, "60 messages", func() bool {
		got, err := f.consumer.Fetch(t.Context(), 500)
		kit.Must(t, err)
		for _, d := range got {
			left[d.Message.ID] = true
			kit.Must(t, d.Ack())
		}
		return len(left) == 60
	})
	f.fetch(0)
}

// A call to a broker that hangs ends when the caller's time is over.
func hangs(t *testing.T, broker *rabbitmqserver.Server) {
	f := setup(t, broker.URL(), rabbitmq.Quorum)
	f.publish(f.message())
	kit.Must(t, broker.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	results := f.publisher.Publish(ctx, f.messages(3))
	for _, err := range results {
		if !errors.Is(err, outbox.ErrBroker) {
			t.Errorf("publishing to a broker that hangs: %v, want ErrBroker", err)
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("publishing to a broker that hangs took %s, want 3s at most", took)
	}
	kit.Must(t, broker.Resume())
	seen := map[string]bool{}
	kit.Eventually(f, "the first message", func() bool {
		got, err := f.consumer.Fetch(t.Context(), 10)
		if err != nil {
			return false // it is still reconnecting
		}
		for _, d := range got {
			seen[d.Message.ID] = true
			kit.Must(t, d.Ack())
		}
		return len(seen) > 0
	})
}

// A broker whose memory is full is not ready until it has room again: nothing is
// claimed from the outbox. It is emptied over a connection that does not publish.
func full(t *testing.T, broker *rabbitmqserver.Server) {
	f := setup(t, broker.URL(), rabbitmq.Quorum)
	f.publish(f.message())
	consuming := rabbitmq.New(broker.URL(), t.Name()+" consumes", rabbitmq.Quorum)
	t.Cleanup(consuming.Close)
	kit.Must(t, broker.Control(t.Context(), "set_vm_memory_high_watermark", "0.0000001"))
	const patience = 5 * time.Second // of a relay's tick
	kit.Eventually(f, "not ready", func() bool {
		// RabbitMQ notifies connections that publish.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		f.publisher.Publish(ctx, f.messages(3))
		if ctx.Err() != nil {
			t.Error("Publish waited for the broker, although it was notified")
		}
		return f.publisher.Ready(t.Context()) != nil
	})
	for range 10 { // Ready does not make it ready again
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if f.publisher.Ready(ctx) == nil {
			t.Fatal("the publisher is ready, but the broker is still full")
		}
		if err := f.publisher.Publish(ctx, f.messages(1))[0]; !errors.Is(err, outbox.ErrBroker) || time.Since(began) > patience/2 {
			t.Fatalf("publishing to a full broker took %s: %v, want ErrBroker soon", time.Since(began), err)
		}
		cancel()
	}
	got, err := rabbitmq.NewConsumer(consuming, f.subject, "settle").Fetch(t.Context(), 10)
	kit.Must(t, err)
	if len(got) == 0 {
		t.Error("a full broker delivers no messages")
	}
	for _, d := range got {
		kit.Must(t, d.Ack())
	}
	kit.Must(t, broker.Control(t.Context(), "set_vm_memory_high_watermark", "0.4"))
	kit.Eventually(f, "ready", func() bool { return f.publisher.Ready(t.Context()) == nil })
	f.publish(f.message())
}
