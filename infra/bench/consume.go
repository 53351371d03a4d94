package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

const fetchBatch = 500

// consume measures accepting events, with JetStream's fetches and acknowledgements,
// beside fetching and acknowledging alone and beside one transaction per event.
func (b *bench) consume(ctx context.Context) error {
	r, err := b.broker(ctx, "consume")
	if err != nil {
		return err
	}
	store := notification.NewStore(r.pool)
	accept := func(size int) func(context.Context, []event.Delivery) error {
		return func(ctx context.Context, deliveries []event.Delivery) error {
			for len(deliveries) > 0 {
				n := min(size, len(deliveries))
				records := make([]event.Record, n)
				for i, d := range deliveries[:n] {
					if records[i], err = event.Decode(d.Message); err != nil {
						return err
					}
				}
				if created, err := store.Accept(ctx, records); err != nil || created != n {
					return fmt.Errorf("accepted %d of %d: %w", created, n, err)
				}
				deliveries = deliveries[n:]
			}
			return nil
		}
	}
	only := func(context.Context, []event.Delivery) error { return nil }
	m, err := b.rounds(ctx,
		arm{"accept, batches of 500", r.consuming(b.sizes.events, accept(fetchBatch))},
		arm{"fetch and ack only", r.consuming(b.sizes.events, only)},
		arm{"one transaction an event", r.consuming(b.sizes.slow, accept(1))},
	)
	if err != nil {
		return err
	}
	b.atLeast(fmt.Sprintf("consume, batch %d", fetchBatch), m[0], "fetch and ack only", m[1], 0.35)
	b.row(fmt.Sprintf("consume, batch %d", fetchBatch), perSecond(m[0]), "one transaction an event: "+perSecond(m[2]), judged(m[0]/m[2], true), "–")
	return nil
}

// consuming is an arm that publishes n events, which is not measured, fetches all of them
// with a new consumer, passes them to work, and acknowledges them.
func (r *broker) consuming(n int, work func(context.Context, []event.Delivery) error) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		if err := r.publishNew(ctx, n); err != nil {
			return 0, err
		}
		durable := "bench_" + uuid.NewString()
		consumer := jetstream.NewConsumer(r.client, event.EntitlementSubject, durable)
		if _, err := r.bulk.Exec(ctx, "CHECKPOINT"); err != nil {
			return 0, err
		}
		return timed(func() (int, error) {
			for got := 0; got < n; {
				deliveries, err := consumer.Fetch(ctx, fetchBatch)
				if err != nil {
					return got, err
				}
				if err := work(ctx, deliveries); err != nil {
					return got, err
				}
				for _, d := range deliveries {
					if err := d.Ack(); err != nil {
						return got, err
					}
				}
				got += len(deliveries)
			}
			return n, r.raw.acknowledged(ctx, durable)
		})
	}
}

// acknowledged waits until the broker has all acknowledgements.
func (s *rawStream) acknowledged(ctx context.Context, durable string) error {
	consumer, err := s.js.Consumer(ctx, streamName, durable)
	for err == nil && consumer.CachedInfo().NumAckPending > 0 {
		time.Sleep(time.Millisecond)
		_, err = consumer.Info(ctx)
	}
	return err
}

// publishNew leaves n new events in the stream, and nothing else.
func (r *broker) publishNew(ctx context.Context, n int) error {
	if err := r.raw.purge(ctx); err != nil {
		return err
	}
	publisher := jetstream.NewPublisher(r.client, event.EntitlementSubject)
	for n > 0 {
		messages := make([]event.Message, min(n, fetchBatch))
		for i := range messages {
			message, err := newMessage()
			if err != nil {
				return err
			}
			messages[i] = message
		}
		for _, err := range publisher.Publish(ctx, messages) {
			if err != nil {
				return err
			}
		}
		n -= len(messages)
	}
	return nil
}

func newMessage() (event.Message, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return event.Message{}, err
	}
	now, user := time.Now().UTC(), randomUser()
	data, err := json.Marshal(map[string]any{
		"event_id": id, "event_type": "EntitlementGranted", "occurred_at": now, "user_id": user,
		"stock_keeping_unit": "item1", "source": "purchase", "source_id": randomKey(), "version": 1,
	})
	if err != nil {
		return event.Message{}, err
	}
	return event.Encode(event.Record{ID: id.String(), Type: "EntitlementGranted", Key: user + "/item1", OccurredAt: now, Traceparent: traceparent, Payload: data})
}
