// Command peers runs the outboxes of other projects, each as its documentation
// recommends, for `make bench-peers`, which starts one process for each measurement:
//
//	peers river|watermill backlog N         relays N committed events, prints events a second
//	peers river|watermill paced N RATE      commits N events, RATE a second, and prints for
//	                                        each how many ns after its commit it was published
//	peers nakama paced ADDRESS RATE TOKEN…  joins a player for each token, RATE a second, and
//	                                        prints how many ns later each had a match
//
// DATABASE_URL is an empty database, NATS_URL a server with JetStream, SUBJECT that of its
// stream, and PAYLOAD the JSON of an event.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// patience bounds a measurement.
const patience = 2 * time.Minute

// peer is another project's outbox.
type peer interface {
	// fill commits n events while nothing relays them.
	fill(ctx context.Context, n int) error
	// insert commits one event.
	insert(ctx context.Context, id string) error
	// relay publishes until ctx ends.
	relay(ctx context.Context) error
	// finished counts the events whose rows are done with; a broker that has them is not
	// enough where the peer marks each row.
	finished() int
}

// place is where the events are and where they go.
type place struct {
	pool    *pgxpool.Pool
	conn    *nats.Conn
	stream  jetstream.JetStream
	subject string
	payload []byte
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: see the documentation of this command")
	}
	if args[0] == "nakama" {
		rate, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return joinMatches(ctx, args[2], args[4:], time.Second/time.Duration(rate))
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	here, err := open(ctx)
	if err != nil {
		return err
	}
	defer here.pool.Close()
	defer here.conn.Close()
	var p peer
	switch args[0] {
	case "river":
		p, err = newRiver(ctx, here)
	case "watermill":
		p, err = newWatermill(ctx, here)
	default:
		err = fmt.Errorf("there is no peer %q", args[0])
	}
	if err != nil {
		return err
	}
	if args[1] == "backlog" {
		return backlog(ctx, here, p, n)
	}
	if len(args) < 4 {
		return errors.New("paced needs a rate")
	}
	rate, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	return paced(ctx, here, p, n, time.Second/time.Duration(rate))
}

func open(ctx context.Context) (*place, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	h := &place{subject: os.Getenv("SUBJECT"), payload: []byte(os.Getenv("PAYLOAD"))}
	if h.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if h.conn, err = nats.Connect(os.Getenv("NATS_URL")); err != nil {
		return nil, err
	}
	h.stream, err = jetstream.New(h.conn)
	return h, err
}

// backlog prints how many events a second are published and finished.
func backlog(ctx context.Context, here *place, p peer, n int) error {
	if err := p.fill(ctx, n); err != nil {
		return err
	}
	for _, sql := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err := here.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	name, err := here.stream.StreamNameBySubject(ctx, here.subject)
	if err != nil {
		return err
	}
	stream, err := here.stream.Stream(ctx, name)
	if err != nil {
		return err
	}
	before := stream.CachedInfo().State.Msgs
	began := time.Now()
	stop := start(ctx, p)
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if int(info.State.Msgs-before) >= n && p.finished() >= n {
			fmt.Println(float64(n) / time.Since(began).Seconds())
			return stop()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// start relays in the background until the function that it returns is called.
func start(ctx context.Context, p peer) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.relay(ctx) }()
	return func() error { cancel(); return <-ended }
}

// paced prints how long after its commit each event was published.
func paced(ctx context.Context, here *place, p peer, n int, every time.Duration) error {
	var mutex sync.Mutex
	published, committed := map[string]time.Time{}, map[string]time.Time{}
	all := make(chan struct{})
	subscription, err := here.conn.Subscribe(here.subject, func(m *nats.Msg) {
		at := time.Now()
		mutex.Lock()
		defer mutex.Unlock()
		published[m.Header.Get(nats.MsgIdHdr)] = at
		if len(published) == n {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	stop := start(ctx, p)
	time.Sleep(2 * time.Second) // until it listens and waits
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range n {
		<-ticker.C
		id := fmt.Sprintf("paced-%d-%d", os.Getpid(), i)
		if err := p.insert(ctx, id); err != nil {
			return err
		}
		at := time.Now()
		mutex.Lock()
		committed[id] = at
		mutex.Unlock()
	}
	select {
	case <-all:
	case <-ctx.Done():
		return fmt.Errorf("%d of %d were published", len(published), n)
	}
	for id, at := range committed {
		fmt.Println(max(published[id].Sub(at), 0).Nanoseconds())
	}
	return stop()
}

// message is an event as a peer publishes it.
func (h *place) message(id string, payload []byte) *nats.Msg {
	return &nats.Msg{Subject: h.subject, Header: nats.Header{jetstream.MsgIDHeader: {id}}, Data: payload}
}
