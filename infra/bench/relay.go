package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

// broker is an experiment's own outbox and JetStream.
type broker struct {
	url    string        // of its NATS
	pool   *pgxpool.Pool // as functions use it
	bulk   *pgxpool.Pool // for loading: its statements may take long
	client *jetstream.Client
	raw    *rawStream
}

func (b *bench) broker(ctx context.Context, name string) (*broker, error) {
	database, err := b.database(ctx, name)
	if err != nil {
		return nil, err
	}
	nats, err := b.nats(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &broker{url: nats.URL(), client: jetstream.New(nats.URL(), "bench", streamLimits)}
	b.onTidy(func() error { r.client.Close(); return nil })
	if err := jetstream.NewPublisher(r.client, event.EntitlementSubject).Ready(ctx); err != nil { // makes the stream
		return nil, err
	}
	if r.pool, r.bulk, err = b.pools(ctx, database, poolSize); err != nil {
		return nil, err
	}
	r.raw, err = b.rawStream(nats.URL())
	return r, err
}

func policy(batch int) lease.Policy {
	p := lease.DefaultPolicy
	p.Batch = batch
	return p
}

// relayFunction is the relay's handler of ticks.
func (r *broker) relayFunction(ctx context.Context, batch int) http.Handler {
	relay := outbox.NewRelay(outbox.RelayConfig{
		Pool: r.pool, Table: entitlement.OutboxTable, Policy: policy(batch), Worker: "bench",
		Publisher: jetstream.NewPublisher(r.client, event.EntitlementSubject), Published: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	return tick.Handler(tick.Config{Budget: maxRun, Log: slog.New(slog.DiscardHandler), Life: ctx, Running: new(sync.WaitGroup)},
		tick.Source{Name: "bench", Step: relay.Step, AtOnce: outbox.AtOnce})
}

// tickOnce ticks a function and returns what it did.
func tickOnce(ctx context.Context, function http.Handler) (report lease.Report, err error) {
	answer := httptest.NewRecorder()
	function.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, tick.Path, http.NoBody))
	if answer.Code != http.StatusOK {
		return report, fmt.Errorf("a tick was answered %d %s", answer.Code, answer.Body)
	}
	return report, json.Unmarshal(answer.Body.Bytes(), &report)
}

// drain is an arm that loads rows, which is not measured, and relays all of them.
func (r *broker) drain(rows, batch int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		relay := r.relayFunction(ctx, batch)
		if err := r.prepare(ctx, rows); err != nil {
			return 0, err
		}
		return timed(func() (int, error) {
			report, err := tickOnce(ctx, relay)
			if err == nil && report.Done != rows {
				err = fmt.Errorf("not all were published: %+v", report)
			}
			return report.Done, err
		})
	}
}

// prepare leaves an empty stream and rows that are due.
func (r *broker) prepare(ctx context.Context, rows int) error {
	if err := r.raw.purge(ctx); err != nil {
		return err
	}
	return refill(ctx, r.bulk, entitlement.OutboxTable, rows)
}

// relay measures the relay beside its two parts alone: publishing, and claiming and
// finishing.
func (b *bench) relay(ctx context.Context) error {
	r, err := b.broker(ctx, "relay")
	if err != nil {
		return err
	}
	rows := b.sizes.relayRows
	if _, err := r.drain(rows/4, 200)(ctx); err != nil { // to warm up
		return err
	}
	if err := r.raw.learn(ctx); err != nil {
		return err
	}
	for _, batch := range []int{200, 500} {
		publish := func(ctx context.Context) (float64, error) {
			messages := r.raw.messages(rows)
			if err := r.raw.purge(ctx); err != nil {
				return 0, err
			}
			return timed(func() (int, error) { return rows, r.raw.publish(ctx, messages, batch) })
		}
		claimAndFinish := func(ctx context.Context) (float64, error) {
			if err := r.prepare(ctx, rows); err != nil {
				return 0, err
			}
			return timed(func() (int, error) { return rawClaimAndFinish(ctx, r.pool, batch) })
		}
		m, err := b.rounds(ctx, arm{fmt.Sprintf("relay, batch %d", batch), r.drain(rows, batch)},
			arm{"publishing alone", publish}, arm{"claiming and finishing alone", claimAndFinish})
		if err != nil {
			return err
		}
		limitName := fmt.Sprintf("1 / (1 / publishing alone, %s + 1 / claiming and finishing alone, %s)", perSecond(m[1]), perSecond(m[2]))
		b.atLeast(fmt.Sprintf("relay, batch %d", batch), m[0], limitName, 1/(1/m[1]+1/m[2]), 0.70)
	}
	return nil
}

// backlog measures the relay on a deep backlog beside a shallow one.
func (b *bench) backlog(ctx context.Context) error {
	r, err := b.broker(ctx, "backlog")
	if err != nil {
		return err
	}
	shallow, deep := b.sizes.backlogs[0], b.sizes.backlogs[1]
	if _, err := r.drain(shallow, 200)(ctx); err != nil { // to warm up
		return err
	}
	m, err := b.rounds(ctx, arm{fmt.Sprintf("backlog of %d", deep), r.drain(deep, 200)}, arm{fmt.Sprintf("backlog of %d", shallow), r.drain(shallow, 200)})
	if err != nil {
		return err
	}
	b.atLeast(fmt.Sprintf("relay, backlog of %d", deep), m[0], fmt.Sprintf("backlog of %d", shallow), m[1], 0.90)
	return nil
}
