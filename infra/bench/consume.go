package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

const (
	fetchBatch = 500
	// acceptAtOnce is how many batches notify accepts at once.
	acceptAtOnce = 2
)

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
		arm{"accept, batches of 500, two at once", r.consuming(b.sizes.events, acceptAtOnce, accept(fetchBatch))},
		arm{"fetch and ack only", r.consuming(b.sizes.events, 1, only)},
		arm{"one transaction an event", r.consuming(b.sizes.slow, 1, accept(1))},
		arm{"accept, batches of 500", r.consuming(b.sizes.events, 1, accept(fetchBatch))},
	)
	if err != nil {
		return err
	}
	b.atLeast(fmt.Sprintf("consume, batch %d", fetchBatch), m[0], "fetch and ack only", m[1], 0.40)
	b.row(fmt.Sprintf("consume, batch %d", fetchBatch), perSecond(m[0]), "one transaction an event: "+perSecond(m[2]), judged(m[0]/m[2], true), "–")
	b.row(fmt.Sprintf("consume, batch %d", fetchBatch), perSecond(m[0]), "one batch at a time: "+perSecond(m[3]), judged(m[0]/m[3], true), "–")
	return nil
}

// consuming is an arm that publishes n events, which is not measured, fetches all of them
// with a new consumer, passes them to work, so many batches at once, and acknowledges them.
func (r *broker) consuming(n, atOnce int, work func(context.Context, []event.Delivery) error) func(context.Context) (float64, error) {
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
			var got atomic.Int64
			group, grouped := errgroup.WithContext(ctx)
			for range atOnce {
				group.Go(func() error {
					for got.Load() < int64(n) {
						done, err := batch(grouped, consumer, work)
						if err != nil {
							return err
						}
						got.Add(int64(done))
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				return 0, err
			}
			return n, r.raw.acknowledged(ctx, durable)
		})
	}
}

// batch fetches messages, passes them to work, acknowledges them and counts them.
func batch(ctx context.Context, consumer *jetstream.Consumer, work func(context.Context, []event.Delivery) error) (int, error) {
	deliveries, err := consumer.Fetch(ctx, fetchBatch)
	if err == nil {
		err = work(ctx, deliveries)
	}
	for _, d := range deliveries {
		if err == nil {
			err = d.Ack()
		}
	}
	return len(deliveries), err
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
