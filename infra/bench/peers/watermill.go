package main

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"
)

// watermillPeer is Watermill's forwarder (components/forwarder) from its PostgreSQL
// messages to NATS. It polls; with the default interval of a second its latency would be
// that second, so it polls as often as River does here.
type watermillPeer struct {
	*place
	database *sql.DB
	forward  *forwarder.Forwarder
}

const (
	watermillTopic = "events"
	watermillPoll  = 20 * time.Millisecond
)

func newWatermill(ctx context.Context, here *place) (*watermillPeer, error) {
	w := &watermillPeer{place: here, database: stdlib.OpenDBFromPool(here.pool)}
	schema, offsets := wsql.DefaultPostgreSQLSchema{}, wsql.DefaultPostgreSQLOffsetsAdapter{}
	for _, table := range []string{schema.MessagesTable(watermillTopic), offsets.MessagesOffsetsTable(watermillTopic)} {
		if _, err := here.pool.Exec(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
			return nil, err
		}
	}
	silent := watermill.NopLogger{}
	subscriber, err := wsql.NewSubscriber(w.database, wsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true, PollInterval: watermillPoll,
	}, silent)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(watermillTopic); err != nil {
		return nil, err
	}
	publisher, err := wnats.NewPublisher(wnats.PublisherConfig{
		URL: here.conn.ConnectedUrl(), JetStream: wnats.JetStreamConfig{TrackMsgId: true},
	}, silent)
	if err != nil {
		return nil, err
	}
	w.forward, err = forwarder.NewForwarder(subscriber, publisher, silent, forwarder.Config{ForwarderTopic: watermillTopic})
	return w, err
}

// publish puts messages into the table, on a connection or in a transaction.
func (w *watermillPeer) publish(on wsql.ContextExecutor, ids ...string) error {
	publisher, err := wsql.NewPublisher(on, wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = message.NewMessage(id, w.payload)
	}
	return forwarder.NewPublisher(publisher, forwarder.PublisherConfig{ForwarderTopic: watermillTopic}).Publish(w.subject, messages...)
}

func (w *watermillPeer) fill(_ context.Context, n int) error {
	const batch = 1000
	for first := 0; first < n; first += batch {
		var ids []string
		for range min(batch, n-first) {
			ids = append(ids, watermill.NewUUID())
		}
		if err := w.publish(w.database, ids...); err != nil {
			return err
		}
	}
	return nil
}

func (w *watermillPeer) insert(ctx context.Context, id string) error {
	tx, err := w.database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := w.publish(tx, id); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (w *watermillPeer) relay(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- w.forward.Run(context.WithoutCancel(ctx)) }()
	<-ctx.Done()
	return errors.Join(w.forward.Close(), <-ended)
}

// finished: the forwarder keeps one offset and marks no row.
func (w *watermillPeer) finished() int { return math.MaxInt }
