package rabbitmq

import (
	"context"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
)

// fetchFirst bounds the wait for the first message of a non-empty queue, and fetchGap the
// gap between two messages of a batch.
const (
	fetchFirst = 100 * time.Millisecond
	fetchGap   = 10 * time.Millisecond
)

// Consumer fetches messages from a durable queue with manual acknowledgement: a message
// is redelivered until it is acknowledged or terminated. Between two fetches it is not
// subscribed, so that a process without ticks withholds no messages from the others.
type Consumer struct {
	client  *Client
	subject string
	queue   string

	mutex sync.Mutex // a channel allows one call at a time
	// channel stays open as long as the connection: when a channel closes, a quorum
	// queue drops acknowledgements in flight.
	channel *amqp.Channel
	fetches int
}

// NewConsumer returns the consumer called durable of the events with subject. Its
// queue, <subject>.<durable>, is created and bound on first use.
func NewConsumer(client *Client, subject, durable string) *Consumer {
	return &Consumer{client: client, subject: subject, queue: subject + "." + durable}
}

// Fetch returns up to limit available messages; an empty answer means that none is left.
// Its error is fault.Unavailable.
func (c *Consumer) Fetch(ctx context.Context, limit int) (deliveries []event.Delivery, err error) {
	err = c.with(ctx, func(*amqp.Connection) error {
		received, err := c.receive(limit)
		for _, d := range received {
			deliveries = append(deliveries, delivery(c.subject, d))
		}
		return err
	})
	if len(deliveries) > 0 {
		err = nil // the next Fetch returns it, if it lasts
	}
	return deliveries, err
}

// receive checks whether the queue has messages, and then subscribes for a moment. A
// basic.get would cost a round trip for each message, and RabbitMQ 3.10 answers
// INTERNAL_ERROR to a subscription on a channel after a basic.get of an empty quorum
// queue.
func (c *Consumer) receive(limit int) ([]amqp.Delivery, error) {
	queue, err := c.channel.QueueDeclarePassive(c.queue, true, false, false, false, nil)
	if err != nil || queue.Messages == 0 {
		return nil, err
	}
	if err := c.channel.Qos(limit, 0, false); err != nil {
		return nil, err
	}
	c.fetches++
	tag := strconv.Itoa(c.fetches)
	more, err := c.channel.Consume(c.queue, tag, false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	received := upTo(limit, more)
	err = c.channel.Cancel(tag, false)
	for d := range more { // messages in flight
		received = append(received, d)
	}
	return received, err
}

// upTo receives until limit, or until no more come. Another process may have emptied the
// queue, so it does not wait long for the first message either.
func upTo(limit int, more <-chan amqp.Delivery) (received []amqp.Delivery) {
	gap := time.NewTimer(fetchFirst)
	defer gap.Stop()
	for len(received) < limit {
		select {
		case d, open := <-more:
			if !open {
				return received
			}
			received = append(received, d)
			gap.Reset(fetchGap)
		case <-gap.C:
			return received
		}
	}
	return received
}

// Waiting returns how many messages of the queue no consumer holds.
func (c *Consumer) Waiting(ctx context.Context) (n int, err error) {
	err = c.with(ctx, func(*amqp.Connection) error {
		queue, err := c.channel.QueueDeclarePassive(c.queue, true, false, false, false, nil)
		n = queue.Messages
		return err
	})
	return n, err
}

// Caught reports whether the queue has no message that was published longer than age ago.
// Messages that a consumer holds count as handled.
func (c *Consumer) Caught(ctx context.Context, age time.Duration) (caught bool, err error) {
	err = c.with(ctx, func(conn *amqp.Connection) error {
		looking, err := conn.Channel()
		if err != nil {
			return err
		}
		defer looking.Close()
		oldest, ok, err := looking.Get(c.queue, false)
		caught = !ok || time.Since(oldest.Timestamp) < age
		if ok {
			err = oldest.Nack(false, true) // back to its place
		}
		return err
	})
	return caught && err == nil, err
}

// with runs do once queue, binding and channel exist.
func (c *Consumer) with(ctx context.Context, do func(*amqp.Connection) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	conn, done, err := c.client.use(ctx)
	if err == nil {
		defer done()
		err = c.open(conn)
	}
	if err == nil {
		if err = do(conn); err == nil {
			return nil
		}
		c.client.forget(c.queue) // it may be gone
	}
	return fault.Unreachable("The event broker", err)
}

func (c *Consumer) open(conn *amqp.Connection) (err error) {
	if err := c.client.ensureExchange(conn); err != nil {
		return err
	}
	if err := c.client.ensure(conn, c.queue, c.declare); err != nil {
		return err
	}
	if c.channel == nil || c.channel.IsClosed() {
		c.channel, err = conn.Channel()
	}
	return err
}

func (c *Consumer) declare(channel *amqp.Channel, passive bool) error {
	declare := channel.QueueDeclare
	if passive {
		declare = channel.QueueDeclarePassive
	}
	if _, err := declare(c.queue, true, false, false, false, c.client.queue.arguments()); err != nil {
		return err
	}
	return channel.QueueBind(c.queue, c.subject, Exchange, false, nil)
}
