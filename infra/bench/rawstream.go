package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
)

var streamLimits = jetstream.Limits{MaxBytes: 1 << 30, MaxAge: 24 * time.Hour, Replicas: 1}

// rawStream is the stream without our code around it.
type rawStream struct {
	js     natsjs.JetStream
	sample *nats.Msg // a message as the relay writes it
}

func (b *bench) rawStream(url string) (*rawStream, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	b.onTidy(func() error { conn.Close(); return nil })
	js, err := natsjs.New(conn)
	return &rawStream{js: js}, err
}

var streamName = jetstream.StreamName(event.EntitlementSubject)

func (s *rawStream) purge(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, streamName)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// learn takes the last message in the stream as the sample.
func (s *rawStream) learn(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, streamName)
	if err != nil {
		return err
	}
	last, err := stream.GetLastMsgForSubject(ctx, event.EntitlementSubject)
	if err != nil {
		return err
	}
	s.sample = &nats.Msg{Subject: last.Subject, Header: last.Header, Data: last.Data}
	return nil
}

// messages are n like the sample, each with an id of its own.
func (s *rawStream) messages(n int) []*nats.Msg {
	list := make([]*nats.Msg, n)
	for i := range list {
		header := nats.Header{}
		for name, values := range s.sample.Header {
			header[name] = values
		}
		header[natsjs.MsgIDHeader] = []string{uuid.NewString()}
		list[i] = &nats.Msg{Subject: s.sample.Subject, Header: header, Data: s.sample.Data}
	}
	return list
}

// publish sends batches and waits for all acknowledgements of each.
func (s *rawStream) publish(ctx context.Context, messages []*nats.Msg, batch int) error {
	futures := make([]natsjs.PubAckFuture, 0, batch)
	for len(messages) > 0 {
		n := min(batch, len(messages))
		futures = futures[:0]
		for _, m := range messages[:n] {
			future, err := s.js.PublishMsgAsync(m)
			if err != nil {
				return err
			}
			futures = append(futures, future)
		}
		for _, future := range futures {
			select {
			case <-future.Ok():
			case err := <-future.Err():
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		messages = messages[n:]
	}
	return nil
}
