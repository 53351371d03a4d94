package jetstream_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/brokertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(t *testing.T) brokertest.Broker {
		client := func(url string) *jetstream.Client {
			c := jetstream.New(url, t.Name(), limits)
			t.Cleanup(c.Close)
			return c
		}
		there, nowhere := client(kit.NATS(t).URL()), client("nats://127.0.0.1:1")
		b := brokertest.Broker{
			Publisher: jetstream.NewPublisher(there, event.TransferSubject), Consumer: jetstream.NewConsumer(there, event.TransferSubject, "settle"),
			Subject: event.TransferSubject, Counts: true,
		}
		b.Away.Publisher, b.Away.Consumer = jetstream.NewPublisher(nowhere, event.TransferSubject), jetstream.NewConsumer(nowhere, event.TransferSubject, "settle")
		return b
	})
}
