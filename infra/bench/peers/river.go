package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer publishes an event in a job. Its settings are those of River's own benchmark
// (`river bench`), which fetches far more often than the defaults (a cooldown of 100 ms).
type riverPeer struct {
	*place
	client *river.Client[pgx.Tx]
	done   atomic.Int64
}

const (
	riverWorkers  = 1000
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
)

type publishArgs struct {
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

func (publishArgs) Kind() string { return "publish" }

type publishWorker struct {
	river.WorkerDefaults[publishArgs]
	*place
}

func (w *publishWorker) Work(ctx context.Context, job *river.Job[publishArgs]) error {
	_, err := w.stream.PublishMsg(ctx, w.message(job.Args.ID, job.Args.Payload))
	return err
}

func newRiver(ctx context.Context, here *place) (*riverPeer, error) {
	driver := riverpgxv5.New(here.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := here.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &publishWorker{place: here})
	client, err := river.NewClient(driver, &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
	return &riverPeer{place: here, client: client}, err
}

func (r *riverPeer) fill(ctx context.Context, n int) error {
	const batch = 5000
	for first := 0; first < n; first += batch {
		var jobs []river.InsertManyParams
		for i := first; i < min(first+batch, n); i++ {
			jobs = append(jobs, river.InsertManyParams{Args: publishArgs{"backlog-" + strconv.Itoa(i) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36), r.payload}})
		}
		if _, err := r.client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (r *riverPeer) insert(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := r.client.InsertTx(ctx, tx, publishArgs{id, r.payload}, nil)
		return err
	})
}

func (r *riverPeer) relay(ctx context.Context) error {
	completed, unsubscribe := r.client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 1 << 18})
	defer unsubscribe()
	go func() {
		for range completed {
			r.done.Add(1)
		}
	}()
	if err := r.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return r.client.StopAndCancel(ending)
}

func (r *riverPeer) finished() int { return int(r.done.Load()) }
