package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
)

const (
	ackWait       = 30 * time.Second
	maxAckPending = 10_000
)

// Consumer is a durable pull consumer with explicit acknowledgement: a message is
// redelivered until it is acknowledged or terminated.
type Consumer struct {
	client  *Client
	subject string
	durable string

	mutex    sync.Mutex
	consumer jetstream.Consumer
}

// NewConsumer returns the consumer called durable on the stream of subject. It
// is created on the broker on first use.
func NewConsumer(client *Client, subject, durable string) *Consumer {
	return &Consumer{client: client, subject: subject, durable: durable}
}

// acknowledger is event.Acknowledger on a JetStream message.
type acknowledger struct{ msg jetstream.Msg }

func (a acknowledger) Ack() error                      { return a.msg.Ack() }
func (a acknowledger) Again(after time.Duration) error { return a.msg.NakWithDelay(after) }
func (a acknowledger) Terminate(reason string) error   { return a.msg.TermWithReason(reason) }

const (
	// settleWait is how long an empty Fetch waits for a first message. JetStream
	// acknowledges a message to its publisher a moment before its consumers see it: a
	// consumer that was woken by the publisher would find nothing.
	settleWait = 25 * time.Millisecond
	// unanswered is how long the library waits for a server that does not answer, as one
	// that has lost its cluster. It reports no error then, as if there were no messages.
	unanswered = time.Second
)

// Fetch returns up to limit available messages. If there are none, it waits 25 ms for a
// first one, so an empty answer means that none is left. Its
// error is fault.Unavailable.
func (c *Consumer) Fetch(ctx context.Context, limit int) ([]event.Delivery, error) {
	var deliveries []event.Delivery
	err := c.with(ctx, func(consumer jetstream.Consumer) (err error) {
		began := time.Now()
		if deliveries, err = collect(consumer.FetchNoWait(limit)); err == nil && len(deliveries) == 0 && time.Since(began) < unanswered {
			deliveries, err = collect(consumer.Fetch(1, jetstream.FetchMaxWait(settleWait)))
		}
		if err == nil && len(deliveries) == 0 && time.Since(began) >= unanswered {
			// A server may be slow, or have nothing to say: maxAckPending are out.
			_, err = consumer.Info(ctx)
		}
		return err
	})
	return deliveries, err
}

func collect(batch jetstream.MessageBatch, err error) ([]event.Delivery, error) {
	if err != nil {
		return nil, err
	}
	var deliveries []event.Delivery
	for msg := range batch.Messages() {
		delivery := event.Delivery{
			Message: event.FromHeaders(msg.Subject(), msg.Headers(), msg.Data()), Headers: msg.Headers(), Acknowledger: acknowledger{msg},
		}
		if meta, err := msg.Metadata(); err == nil {
			delivery.Delivered = meta.NumDelivered
		}
		deliveries = append(deliveries, delivery)
	}
	if len(deliveries) > 0 {
		return deliveries, nil // the next Fetch returns the error, if it lasts
	}
	return nil, batch.Error()
}

// Waiting returns how many messages of the stream are not acknowledged yet.
func (c *Consumer) Waiting(ctx context.Context) (n int, err error) {
	err = c.with(ctx, func(consumer jetstream.Consumer) error {
		info, err := consumer.Info(ctx)
		if err == nil {
			n = int(info.NumPending) + info.NumAckPending
		}
		return err
	})
	return n, err
}

// Caught reports whether every message of the stream that is older than age was
// delivered to this consumer and acknowledged.
func (c *Consumer) Caught(ctx context.Context, age time.Duration) (caught bool, err error) {
	err = c.with(ctx, func(consumer jetstream.Consumer) error {
		js, err := c.client.jetstream(ctx, c.subject)
		if err != nil {
			return err
		}
		stream, err := js.Stream(ctx, StreamName(c.subject))
		if err != nil {
			return err
		}
		info, err := consumer.Info(ctx)
		if err != nil {
			return err
		}
		// Not NumPending: a message is acknowledged to its publisher before consumers
		// count it.
		state := stream.CachedInfo().State
		if state.Msgs == 0 || info.AckFloor.Stream >= state.LastSeq {
			caught = true
			return nil
		}
		// Everything up to the floor is acknowledged; the next message is the oldest that
		// may not be.
		oldest, err := stream.GetMsg(ctx, max(info.AckFloor.Stream+1, state.FirstSeq))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil // it left the stream meanwhile; the next call sees another
		}
		if err == nil {
			caught = info.TimeStamp.Sub(oldest.Time) < age // both by the broker's clock
		}
		return err
	})
	return caught, err
}

// with runs do with the consumer on the broker. If the broker lost its store, and so
// stream and consumer, both are created again, and do runs once more.
func (c *Consumer) with(ctx context.Context, do func(jetstream.Consumer) error) error {
	const tries = 2
	err := ctx.Err()
	if err != nil {
		// Messages taken now would wait until their acknowledgement times out.
		return fault.Unreachable("The event broker", err)
	}
	for range tries {
		began := time.Now()
		var consumer jetstream.Consumer
		if consumer, err = c.get(ctx); err == nil {
			err = do(consumer)
		}
		c.client.learn(began, err)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
		c.forget()
	}
	return fault.Unreachable("The event broker", err)
}

func (c *Consumer) get(ctx context.Context) (jetstream.Consumer, error) {
	js, err := c.client.jetstream(ctx, c.subject)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.consumer != nil {
		return c.consumer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	consumer, err := js.CreateOrUpdateConsumer(ctx, StreamName(c.subject), jetstream.ConsumerConfig{
		Durable:       c.durable,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: maxAckPending,
		MaxDeliver:    -1, // we decide what is poison
	})
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", c.durable, err)
	}
	c.consumer = consumer
	return consumer, nil
}

// forget makes the next call look up stream and consumer again.
func (c *Consumer) forget() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.consumer = nil
	c.client.forget(c.subject)
}
