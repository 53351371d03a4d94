package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

// Publisher publishes the messages of one subject.
type Publisher struct {
	client  *Client
	subject string
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher of messages with subject.
func NewPublisher(client *Client, subject string) *Publisher { return &Publisher{client, subject} }

// Ready returns nil when the subject's stream exists; it creates a missing one.
func (p *Publisher) Ready(ctx context.Context) error {
	_, err := p.client.jetstream(ctx, p.subject)
	return err
}

// Publish sends all messages and then waits once for all acknowledgements, or
// for ackTimeout or until ctx ends. See outbox.Publisher for what its errors mean.
func (p *Publisher) Publish(ctx context.Context, messages []event.Message) []error {
	results := make([]error, len(messages))
	js, err := p.client.jetstream(ctx, p.subject)
	if err != nil {
		return fill(results, err)
	}
	began := time.Now()
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		if ctx.Err() != nil {
			results[i] = fmt.Errorf("%w: %w", outbox.ErrBroker, ctx.Err())
			continue
		}
		// Expected stream: a message without a stream must not count as published.
		futures[i], err = js.PublishMsgAsync(toMsg(m), jetstream.WithExpectStream(StreamName(m.Subject)))
		results[i] = p.judge(err)
	}
	for i, future := range futures {
		if future == nil {
			continue
		}
		select {
		case <-future.Ok():
		case err := <-future.Err():
			results[i] = p.judge(err)
		case <-ctx.Done():
			// It may be stored all the same, and is then published twice.
			results[i] = fmt.Errorf("%w: no acknowledgement: %w", outbox.ErrBroker, ctx.Err())
		}
	}
	if len(results) > 0 {
		p.client.learn(began, results[max(0, slices.IndexFunc(results, answers))])
	}
	return results
}

// toMsg returns the NATS message.
func toMsg(m event.Message) *nats.Msg {
	h := nats.Header{jetstream.MsgIDHeader: {cmp.Or(m.Dedup, m.ID)}}
	for name, value := range m.Headers() {
		h[name] = []string{value}
	}
	return &nats.Msg{Subject: m.Subject, Header: h, Data: m.Data}
}

// judge attributes err to the message or the broker. Any error that is not clearly the
// message's is the broker's: away, full, without a leader, or without the stream.
func (p *Publisher) judge(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", outbox.ErrRefused, err)
	case errors.As(err, &api) && api.ErrorCode == codeMessageTooLarge:
		return fmt.Errorf("%w: %w", outbox.ErrRefused, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		// The stream is gone: the next Ready creates it again.
		p.client.forget(p.subject)
	}
	return fmt.Errorf("%w: %w", outbox.ErrBroker, err)
}

func fill(results []error, err error) []error {
	for i := range results {
		results[i] = fmt.Errorf("%w: %w", outbox.ErrBroker, err)
	}
	return results
}
