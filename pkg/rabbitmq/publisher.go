package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

// Publisher publishes the messages of a relay.
type Publisher struct{ client *Client }

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher on client.
func NewPublisher(client *Client) *Publisher { return &Publisher{client} }

// Ready is the client's.
func (p *Publisher) Ready(ctx context.Context) error { return p.client.Ready(ctx) }

// Publish sends all messages and then waits for the broker's confirms, at most until
// ctx ends or the broker is full. A message without a queue is returned and not
// published. Every failure is the broker's, none the message's. See outbox.Publisher.
func (p *Publisher) Publish(ctx context.Context, messages []event.Message) []error {
	results := make([]error, len(messages))
	fail := func(i int, err error) { results[i] = fmt.Errorf("%w: %w", outbox.ErrBroker, err) }
	failAll := func(err error) []error {
		for i := range results {
			fail(i, err)
		}
		return results
	}
	conn, done, err := p.client.use(ctx)
	if err != nil {
		return failAll(err)
	}
	defer done()
	full := p.client.full()
	if closed(full) {
		return failAll(errFull) // it would not even open a channel
	}
	// Its own channel, because confirms and returns are counted by channel.
	channel, err := conn.Channel()
	if err != nil {
		return failAll(err)
	}
	defer func() {
		if closed(full) {
			go channel.Close() // answered when the broker has room, or the connection ends
			return
		}
		_ = channel.Close()
	}()
	returned := channel.NotifyReturn(make(chan amqp.Return, len(messages)))
	if err := channel.Confirm(false); err != nil {
		return failAll(err)
	}
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	at := make(map[string]int, len(messages))
	for i, m := range messages {
		at[m.ID] = i
		if confirms[i], err = channel.PublishWithDeferredConfirm(Exchange, m.Subject, true, false, publishing(m)); err != nil {
			fail(i, err)
		}
	}
	for i, confirm := range confirms {
		if results[i] != nil {
			continue
		}
		select {
		case <-confirm.Done():
			if !confirm.Acked() {
				fail(i, errNotStored)
			}
		// It may be stored all the same, and is then published twice.
		case <-full:
			fail(i, errFull)
		case <-ctx.Done():
			fail(i, fmt.Errorf("no acknowledgement: %w", ctx.Err()))
		}
	}
	p.sortReturned(returned, at, fail)
	if slices.ContainsFunc(results, func(err error) bool { return err != nil }) {
		p.client.forget(Exchange)
	}
	return results
}

var (
	errNotStored = errors.New("rabbitmq did not confirm it")
	errNoQueue   = errors.New("no queue takes it")
)

// sortReturned fails returned messages. A return arrives before its confirm, so all of
// them have arrived.
func (p *Publisher) sortReturned(returned <-chan amqp.Return, at map[string]int, fail func(int, error)) {
	for {
		select {
		case r, open := <-returned:
			if !open {
				return
			}
			fail(at[r.MessageId], errNoQueue)
		default:
			return
		}
	}
}

// publishing returns the AMQP message.
func publishing(m event.Message) amqp.Publishing {
	headers := amqp.Table{}
	for name, value := range m.Headers() {
		headers[name] = value
	}
	return amqp.Publishing{
		Headers: headers, ContentType: event.ContentType, DeliveryMode: amqp.Persistent, MessageId: m.ID, Type: m.ShortType(),
		// The time of publishing, not of the event: Consumer.Caught uses it.
		Timestamp: time.Now(), AppId: "miniserver", Body: m.Data,
	}
}
