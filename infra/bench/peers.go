package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
)

const (
	peersDir       = "infra/bench/peers"
	eventsASecond  = 100 // while latency is measured
	riverSettings  = "River (1,000 workers, cooldown 2 ms, poll 20 ms)"
	waterSettings  = "Watermill's forwarder (batches of 100, poll 20 ms)"
	relaySettings  = "relay (batches of 200, woken after each commit)"
	timesRiver     = 2
	timesWatermill = 10
)

// outboxes measures the relay beside other projects' ways from a table to JetStream: on
// the same Postgres and the same stream, by turns.
func (b *bench) outboxes(ctx context.Context) error {
	program := filepath.Join(b.dir, "peers")
	if err := build(ctx, peersDir, program, "."); err != nil {
		return err
	}
	ours, err := b.broker(ctx, "peers")
	if err != nil {
		return err
	}
	if err := ours.prepare(ctx, 1); err != nil {
		return err
	}
	var payload string
	if err := ours.pool.QueryRow(ctx, "SELECT payload::text FROM "+entitlement.OutboxTable).Scan(&payload); err != nil {
		return err
	}
	river, err := b.otherOutbox(ctx, program, "river", payload, ours)
	if err != nil {
		return err
	}
	watermill, err := b.otherOutbox(ctx, program, "watermill", payload, ours)
	if err != nil {
		return err
	}
	if _, err := ours.drain(b.sizes.relayRows/4, 200)(ctx); err != nil { // to warm up
		return err
	}
	for _, n := range b.sizes.peerBacklogs {
		m, err := b.rounds(ctx, arm{"relay", ours.drain(n, 200)}, arm{"River", river.backlog(n)}, arm{"Watermill", watermill.backlog(n)})
		if err != nil {
			return err
		}
		work := fmt.Sprintf("backlog of %d events, relay in batches of 200", n)
		b.atLeast(work, m[0], riverSettings, m[1], timesRiver)
		b.atLeast(work, m[0], waterSettings, m[2], timesWatermill)
	}
	return b.outboxLatency(ctx, ours, river, watermill)
}

// outboxLatency compares the times from an event's commit until subscribers have it.
func (b *bench) outboxLatency(ctx context.Context, ours *broker, others ...*otherOutbox) error {
	events := int(b.sizes.paced.Seconds() * eventsASecond)
	took := make([][]time.Duration, 1+len(others))
	for range b.sizes.rounds {
		some, err := ours.publishPaced(ctx, events)
		if err != nil {
			return err
		}
		took[0] = append(took[0], some...)
		for i, other := range others {
			if some, err = other.paced(ctx, events); err != nil {
				return err
			}
			took[1+i] = append(took[1+i], some...)
		}
	}
	for _, p := range []float64{0.5, 0.99} {
		own := percentile(took[0], p)
		for i, name := range []string{riverSettings, waterSettings} {
			theirs := percentile(took[1+i], p)
			ratio := float64(own) / float64(theirs)
			b.row(fmt.Sprintf("commit → published at %d events/s, p%.0f, %s", eventsASecond, 100*p, relaySettings), ms(own), name+": "+ms(theirs), judged(ratio, ratio <= 1), "≤ 1.00")
		}
	}
	return nil
}

// otherOutbox is another project's outbox on a database of its own, in a process for each
// measurement; see infra/bench/peers.
type otherOutbox struct {
	program, name string
	environment   []string
	raw           *rawStream
}

func (b *bench) otherOutbox(ctx context.Context, program, name, payload string, ours *broker) (*otherOutbox, error) {
	database, err := b.emptyDatabase(ctx, name)
	if err != nil {
		return nil, err
	}
	return &otherOutbox{program, name, []string{
		"DATABASE_URL=" + database, "NATS_URL=" + ours.url, "SUBJECT=" + event.EntitlementSubject, "PAYLOAD=" + payload,
	}, ours.raw}, nil
}

// run returns the lines that the peer prints.
func (o *otherOutbox) run(ctx context.Context, args ...string) ([]string, error) {
	if err := o.raw.purge(ctx); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, o.program, append([]string{o.name}, args...)...)
	command.Env = o.environment
	var printed, failed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &failed
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", o.name, err, failed.Bytes())
	}
	return strings.Fields(printed.String()), nil
}

func (o *otherOutbox) backlog(n int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		lines, err := o.run(ctx, "backlog", strconv.Itoa(n))
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.Join(lines, " "), 64)
	}
}

func (o *otherOutbox) paced(ctx context.Context, n int) ([]time.Duration, error) {
	lines, err := o.run(ctx, "paced", strconv.Itoa(n), strconv.Itoa(eventsASecond))
	if err != nil {
		return nil, err
	}
	return durations(lines)
}

// durations reads lines of ns.
func durations(lines []string) ([]time.Duration, error) {
	took := make([]time.Duration, len(lines))
	for i, line := range lines {
		nanoseconds, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return nil, err
		}
		took[i] = time.Duration(nanoseconds)
	}
	return took, nil
}

// publishPaced commits events at a pace, wakes the relay after each as functions do, and
// returns how long after its commit each was published.
func (r *broker) publishPaced(ctx context.Context, n int) ([]time.Duration, error) {
	if err := r.prepare(ctx, 0); err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	published, committed := map[string]time.Time{}, map[string]time.Time{}
	all := make(chan struct{})
	conn, err := nats.Connect(r.url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Subscribe(event.EntitlementSubject, func(m *nats.Msg) {
		at := time.Now()
		mutex.Lock()
		defer mutex.Unlock()
		published[m.Header.Get(natsjs.MsgIDHeader)] = at
		if len(published) == n {
			close(all)
		}
	}); err != nil {
		return nil, err
	}
	var wakes sync.WaitGroup
	relay := r.relayFunction(ctx, 200)
	ticker := time.NewTicker(time.Second / eventsASecond)
	defer ticker.Stop()
	for range n {
		<-ticker.C
		id, err := insertOne(ctx, r.pool, entitlement.OutboxTable)
		if err != nil {
			return nil, err
		}
		at := time.Now()
		wakes.Go(func() {
			_, _ = tickOnce(ctx, relay) // an event that is not published is noticed below
		})
		mutex.Lock()
		committed[id] = at
		mutex.Unlock()
	}
	wakes.Wait()
	select {
	case <-all:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Second):
		return nil, fmt.Errorf("not all of %d events were published", n)
	}
	mutex.Lock()
	defer mutex.Unlock()
	took := make([]time.Duration, 0, n)
	for id, at := range committed {
		took = append(took, max(published[id].Sub(at), 0))
	}
	return took, nil
}
