package jetstream_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	streamName = "ENTITLEMENT_EVENTS"
	traceID    = "4bf92f3577b34da6a3ce929d0e0e4736"
)

var limits = jetstream.Limits{MaxBytes: 64 << 20, MaxAge: 7 * 24 * time.Hour, Replicas: 1}

// fixture is a NATS of the test's own, with our client and a plain one.
type fixture struct {
	t         testing.TB
	dir       string
	nats      *natsserver.Server
	client    *jetstream.Client
	publisher *jetstream.Publisher
	consumer  *jetstream.Consumer
	js        natsjs.JetStream
}

func setup(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir()}
	f.start()
	f.client = jetstream.New(f.nats.URL(), "test", limits)
	t.Cleanup(f.client.Close)
	f.publisher = jetstream.NewPublisher(f.client, event.EntitlementSubject)
	f.consumer = jetstream.NewConsumer(f.client, event.EntitlementSubject, "notify")
	conn, err := nats.Connect(f.nats.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.IgnoreAuthErrorAbort())
	kit.Must(t, err)
	t.Cleanup(conn.Close)
	f.js, err = natsjs.New(conn)
	kit.Must(t, err)
	return f
}

// start starts NATS, a second time at the same address.
func (f *fixture) start() {
	f.t.Helper()
	n, err := natsserver.Start(f.t.Context(), natsserver.Options{Dir: f.dir})
	kit.Must(f.t, err)
	f.t.Cleanup(func() { _ = n.Stop() })
	if f.nats != nil && f.nats.URL() != n.URL() {
		f.t.Fatalf("NATS came back at %s, want %s", n.URL(), f.nats.URL())
	}
	f.nats = n
}

// message returns a message about key.
func message(key string) event.Message {
	id := uuid.Must(uuid.NewV7()).String()
	m, err := event.Encode(event.Record{
		ID: id, Type: "EntitlementGranted", Key: key,
		OccurredAt:  time.Date(2026, 1, 8, 7, 10, 0, 123456000, time.UTC),
		Traceparent: "00-" + traceID + "-00f067aa0ba902b7-01",
		Payload:     []byte(`{"event_id":"` + id + `","event_type":"EntitlementGranted","user_id":"u_1","version":3}`),
	})
	if err != nil {
		panic(err)
	}
	return m
}

// publish publishes and expects every message to be stored.
func (f *fixture) publish(messages ...event.Message) {
	f.t.Helper()
	for _, err := range f.publisher.Publish(f.t.Context(), messages) {
		kit.Must(f.t, err)
	}
}

// fetch waits until want messages have come, and returns them.
func (f *fixture) fetch(want int) []event.Delivery {
	f.t.Helper()
	var all []event.Delivery
	kit.Eventually(f.t, "messages come", func() bool {
		deliveries, err := f.consumer.Fetch(f.t.Context(), 100)
		if err != nil {
			f.t.Logf("fetch: %v", err)
		}
		all = append(all, deliveries...)
		return len(all) >= want
	})
	if len(all) != want {
		f.t.Fatalf("%d messages came, want %d", len(all), want)
	}
	return all
}

func (f *fixture) pending() *natsjs.ConsumerInfo {
	f.t.Helper()
	c, err := f.js.Consumer(f.t.Context(), streamName, "notify")
	kit.Must(f.t, err)
	info, err := c.Info(f.t.Context())
	kit.Must(f.t, err)
	return info
}
