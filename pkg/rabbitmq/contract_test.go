package rabbitmq_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/test/kit/brokertest"
)

// Both types of queue pass the contract; classic queues do not count deliveries.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, queue := range []rabbitmq.Queue{rabbitmq.Quorum, rabbitmq.Classic} {
		t.Run(string(queue), func(t *testing.T) {
			t.Parallel()
			brokertest.Run(t, func(t *testing.T) brokertest.Broker {
				f := setup(t, server.URL(), queue)
				b := brokertest.Broker{Publisher: f.publisher, Consumer: f.consumer, Subject: f.subject, Counts: queue == rabbitmq.Quorum}
				nowhere := rabbitmq.New("amqp://127.0.0.1:1", t.Name(), queue)
				t.Cleanup(nowhere.Close)
				b.Away.Publisher, b.Away.Consumer = rabbitmq.NewPublisher(nowhere), rabbitmq.NewConsumer(nowhere, f.subject, "settle")
				return b
			})
		})
	}
}
