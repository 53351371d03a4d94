package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const (
	joinClients = 64
	// anybody is the attributes of everyone who joins here, in canonical JSON.
	anybody = `{"region":"eu","skill":1500}`
)

// joins measures joining a queue beside the same commands in a transaction, which decides
// nothing: the cost of Redis, the client and the connection without the script.
func (b *bench) joins(ctx context.Context) error {
	q, err := b.queues(ctx, "joins")
	if err != nil {
		return err
	}
	attributes, err := parsed(anybody)
	if err != nil {
		return err
	}
	ours := &joining{queues: q, do: func(ctx context.Context) error { return q.join(ctx, casual, attributes) }}
	limit := &joining{queues: q, do: func(ctx context.Context) error { return rawJoin(ctx, q.client) }}
	for _, j := range []*joining{ours, limit} {
		if _, err := j.run(b.sizes.front / 3)(ctx); err != nil { // to warm up
			return err
		}
		j.cpu = nil
	}
	m, err := b.rounds(ctx, arm{"join", ours.run(b.sizes.front)}, arm{"transaction", limit.run(b.sizes.front)})
	if err != nil {
		return err
	}
	b.atLeast(fmt.Sprintf("join without HTTP, casual, %d workers", joinClients), m[0], "MULTI/EXEC of the same commands", m[1], 0.75)
	b.note("CPU of Redis for a join, casual: %d µs, and for the transaction: %d µs.",
		percentile(ours.cpu, 0.5).Microseconds(), percentile(limit.cpu, 0.5).Microseconds())
	return nil
}

// joining is one of the two, with the results of its rounds.
type joining struct {
	*queues
	do  func(context.Context) error
	cpu []time.Duration // of Redis, for one
}

// run is an arm, on queues that it empties.
func (j *joining) run(window time.Duration) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		if err := j.empty(ctx); err != nil {
			return 0, err
		}
		before, err := j.queues.cpu(ctx)
		if err != nil {
			return 0, err
		}
		var joined atomic.Int64
		rate, err := load(ctx, joinClients, window, func(ctx context.Context) (func() error, func(), error) {
			return func() error { joined.Add(1); return j.do(ctx) }, func() {}, nil
		})
		if err != nil {
			return 0, err
		}
		after, err := j.queues.cpu(ctx)
		j.cpu = append(j.cpu, (after-before)/time.Duration(max(joined.Load(), 1)))
		return rate, err
	}
}

// rawJoin sends the commands of join.lua for a queue without rules, with values of the
// same sizes.
func rawJoin(ctx context.Context, client redis.UniversalClient) error {
	const (
		tag         = "{" + casual + "}"
		fingerprint = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg"
	)
	waits, kept := still.Milliseconds(), still+matchmaking.Kept
	now := time.Now().UnixMilli()
	at, expires := strconv.FormatInt(now, 10), strconv.FormatInt(now+waits, 10)
	user, ticket := id.Text(id.User, id.New()), id.Text(casual, id.New())
	_, err := client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Time(ctx)
		tx.Get(ctx, "mm:idemp:"+tag+":"+user+":"+ticket)
		tx.Get(ctx, "mm:active:"+tag+":"+user)
		tx.ZCard(ctx, "mm:queue:"+tag)
		tx.ZCard(ctx, "mm:due:"+tag)
		tx.Set(ctx, "mm:ticket:"+tag+":"+ticket, strings.Join([]string{at, expires, user, traceparent, at, "", "", ticket, anybody, ""}, "\x00"), kept)
		tx.Set(ctx, "mm:idemp:"+tag+":"+user+":"+ticket, fingerprint+" "+expires+" "+ticket, kept)
		tx.Set(ctx, "mm:active:"+tag+":"+user, ticket, kept)
		tx.ZAdd(ctx, "mm:queue:"+tag, redis.Z{Score: float64(now), Member: ticket})
		return nil
	})
	if errors.Is(err, redis.Nil) { // nobody waits under these names
		return nil
	}
	return err
}
