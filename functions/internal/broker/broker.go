// Package broker chooses the broker that carries completed transfers from relay to
// settle: JetStream, as for all other events, or RabbitMQ.
package broker

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// Consumer takes completed transfers.
type Consumer interface {
	Fetch(ctx context.Context, limit int) ([]event.Delivery, error)
	Caught(ctx context.Context, age time.Duration) (bool, error)
	Waiting(ctx context.Context) (int, error)
}

// Publisher returns the publisher of completed transfers.
func Publisher(e *fn.Env) outbox.Publisher {
	if e.Settings.TransferBroker == settings.RabbitMQ {
		publish, _ := e.RabbitMQ()
		return rabbitmq.NewPublisher(publish)
	}
	return jetstream.NewPublisher(e.NATS(), event.TransferSubject)
}

// Completed returns settle's consumer.
func Completed(e *fn.Env) Consumer {
	if e.Settings.TransferBroker == settings.RabbitMQ {
		_, consume := e.RabbitMQ()
		return rabbitmq.NewConsumer(consume, event.TransferSubject, transfer.Consumer)
	}
	return jetstream.NewConsumer(e.NATS(), event.TransferSubject, transfer.Consumer)
}
