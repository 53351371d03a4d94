package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

const (
	casual = "casual"
	rank   = "rank"

	// joiners fill a queue together.
	joiners = 32
	// still is longer than any run: nobody expires and no window widens while a
	// queue is measured.
	still = time.Hour
)

// queues are the system's default ones.
type queues struct {
	*matchmaking.Store
	rules  matchmaking.Rules
	client redis.UniversalClient
}

// within returns the same queues with other skill windows.
func (q *queues) within(windows []int) *queues {
	rules := q.rules
	rules.Windows = windows
	return &queues{matchmaking.NewStore(q.client, rules), rules, q.client}
}

// holding returns the same queues with room for n tickets at least.
func (q *queues) holding(n int) *queues {
	rules := q.rules
	rules.QueueLimit = max(rules.QueueLimit, n)
	return &queues{matchmaking.NewStore(q.client, rules), rules, q.client}
}

// queues starts a Redis for queues.
func (b *bench) queues(ctx context.Context, name string) (*queues, error) {
	server, err := b.redis(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.queuesAt(server.URL())
}

// queuesAt uses a Redis through a client as functions have it.
func (b *bench) queuesAt(url string) (*queues, error) {
	s, err := settings.LoadFrom(map[string]string{"REDIS_URL": url})
	if err != nil {
		return nil, err
	}
	modes, err := matchmaking.NewModes(s.MatchmakingModes, s.MatchmakingRanked, s.MatchmakingAgree)
	if err != nil {
		return nil, err
	}
	client, err := fn.NewRuntime(s, slog.New(slog.DiscardHandler), nil).Redis()
	if err != nil {
		return nil, err
	}
	b.onTidy(client.Close)
	rules := matchmaking.Rules{Modes: modes, TTL: still, Windows: s.MatchmakingWindows, WidenEvery: still, QueueLimit: s.MatchmakingQueue}
	return &queues{matchmaking.NewStore(client, rules), rules, client}, rules.Check()
}

// join lets a new player join.
func (q *queues) join(ctx context.Context, mode string, attributes matchmaking.Attributes) error {
	_, _, err := q.Join(ctx, matchmaking.Join{
		UserID: id.Text(id.User, id.New()), Mode: mode, Key: randomKey(), Attributes: attributes, Traceparent: traceparent,
	})
	return err
}

// couple returns the attributes of the nth two players who join together.
type couple func(n int) (a, b string)

// fill lets n players join; n is even.
func (q *queues) fill(ctx context.Context, mode string, n int, of couple) error {
	var joined atomic.Int64
	_, err := load(ctx, joiners, maxRun, func(ctx context.Context) (func() error, func(), error) {
		return func() error {
			nth := int(joined.Add(1)) - 1
			if nth >= n/2 {
				return errEnough
			}
			a, b := of(nth)
			for _, text := range []string{a, b} {
				attributes, err := parsed(text)
				if err == nil {
					err = q.join(ctx, mode, attributes)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, func() {}, nil
	})
	return err
}

func parsed(text string) (matchmaking.Attributes, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return matchmaking.Attributes{}, err
	}
	return matchmaking.ParseAttributes(raw)
}

func attributesOf(region int, skill float64) string {
	return fmt.Sprintf(`{"region":"r%d","skill":%.2f}`, region, skill)
}
