package jetstream_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The consumer dies after its commit and before its acknowledgement: the message is
// redelivered, and changes nothing.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	f := setup(t)
	store := notification.NewStore(kit.Pool(t))
	f.publish(message("k"))
	accept := func(d event.Delivery) int {
		t.Helper()
		record, err := event.Decode(d.Message)
		kit.Must(t, err)
		created, err := store.Accept(t.Context(), []event.Record{record})
		kit.Must(t, err)
		return created
	}
	first := f.fetch(1)[0]
	if created := accept(first); created != 1 || first.Delivered != 1 {
		t.Fatalf("created %d of delivery %d, want 1 of 1", created, first.Delivered)
	}
	// The message is not acknowledged; the broker waits for less than the usual 30 s.
	config := f.pending().Config
	config.AckWait = 100 * time.Millisecond
	_, err := f.js.UpdateConsumer(t.Context(), streamName, config)
	kit.Must(t, err)
	again := f.fetch(1)[0]
	if created := accept(again); created != 0 || again.Delivered < 2 || again.Message.ID != first.Message.ID {
		t.Fatalf("created %d of delivery %d, want none of a redelivery", created, again.Delivered)
	}
	kit.Must(t, again.Ack())
	kit.Eventually(t, "acknowledged", func() bool { return f.pending().NumAckPending == 0 })
	// A late acknowledgement of the first delivery does no harm.
	_ = first.Ack()
	if deliveries, err := f.consumer.Fetch(t.Context(), 10); err != nil || len(deliveries) != 0 {
		t.Errorf("%d messages came after the acknowledgement, want none; %v", len(deliveries), err)
	}
}

// Fetch delivers any message, even one that Decode cannot read.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	f := setup(t)
	kit.Must(t, f.publisher.Ready(t.Context()))
	for _, header := range []nats.Header{
		nil,
		{"ce-id": {"x"}, "ce-type": {"EntitlementGranted"}, "ce-time": {"yesterday"}, "ce-subject": {"%zz"}},
		{"ce-id": {}, "ce-type": {"."}},
		{"ce-id": {"x", "y"}, "ce-type": {"miniserver.entitlement.v1.EntitlementGranted"}},
		{"ce-id": {"x"}, "ce-type": {"other.EntitlementGranted"}},
	} {
		_, err := f.js.PublishMsg(t.Context(), &nats.Msg{Subject: event.EntitlementSubject, Header: header, Data: []byte{0xff, 0xff}})
		kit.Must(t, err)
	}
	for i, d := range f.fetch(5) {
		if _, err := event.Decode(d.Message); !errors.Is(err, event.ErrUnreadable) {
			t.Errorf("message %d: %v, want ErrUnreadable", i, err)
		}
	}
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.publish(message("k"))
	f.fetch(1)
	kit.Must(t, f.nats.Stop())
	kit.Eventually(t, "the connection is seen to be gone", func() bool { return f.client.Ready(t.Context()) != nil })
	if _, err := f.consumer.Fetch(t.Context(), 1); fault.Of(err) != fault.Unavailable {
		t.Errorf("fetch without a broker: %v, want Unavailable", err)
	}
	never := jetstream.NewConsumer(jetstream.New(f.nats.URL(), "new", limits), event.EntitlementSubject, "notify")
	if _, err := never.Fetch(t.Context(), 1); fault.Of(err) != fault.Unavailable {
		t.Errorf("fetch of a client that never connected: %v, want Unavailable", err)
	}
}

// The broker restarts, with its store or without: events flow again. With the store, those
// that were not acknowledged are redelivered.
func TestConsumerAfterRestart(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"kept", "deleted"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.publish(message("acked"))
			kit.Must(t, f.fetch(1)[0].Ack())
			kit.Eventually(t, "acknowledged", func() bool { return f.pending().AckFloor.Stream == 1 })
			f.publish(message("waits"))
			kit.Must(t, f.nats.Stop())
			if store == "deleted" {
				kit.Must(t, os.RemoveAll(filepath.Join(f.dir, "jetstream")))
			}
			f.start()
			kit.Eventually(t, "the broker takes events again", func() bool {
				return f.publisher.Publish(t.Context(), []event.Message{message("after")})[0] == nil
			})
			seen := map[string]bool{}
			kit.Eventually(t, "the stored events are delivered", func() bool {
				deliveries, _ := f.consumer.Fetch(t.Context(), 10)
				for _, d := range deliveries {
					seen[d.Message.Key] = true
					_ = d.Ack()
				}
				return seen["after"] && (seen["waits"] || store == "deleted")
			})
			if seen["acked"] {
				t.Error("an acknowledged event was redelivered")
			}
		})
	}
}
