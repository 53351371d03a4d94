package rabbitmq

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/miniserversystem/miniserver/pkg/event"
)

func delivery(subject string, d amqp.Delivery) event.Delivery {
	headers := make(map[string][]string, len(d.Headers))
	for name, value := range d.Headers {
		headers[name] = []string{fmt.Sprint(value)} // foreign publishers may use any type
	}
	delivered := uint64(1)
	if d.Redelivered {
		delivered = 2 // at least: classic queues do not count
	}
	if count, ok := d.Headers["x-delivery-count"].(int64); ok && count > 0 {
		delivered = 1 + uint64(count)
	}
	return event.Delivery{
		Message: event.FromHeaders(subject, headers, d.Body), Headers: headers, Delivered: delivered, Acknowledger: acknowledger{d},
	}
}

// acknowledger is event.Acknowledger on a message of RabbitMQ.
type acknowledger struct{ d amqp.Delivery }

func (a acknowledger) Ack() error { return a.d.Ack(false) }

// Again returns the message after a while: RabbitMQ has no delay, so this process holds
// it. If the process ends before, the broker redelivers it at once.
func (a acknowledger) Again(after time.Duration) error {
	time.AfterFunc(after, func() { _ = a.d.Nack(false, true) })
	return nil
}

// Terminate drops the message, or moves it to the queue's dead-letter exchange if there
// is one.
func (a acknowledger) Terminate(string) error { return a.d.Reject(false) }
