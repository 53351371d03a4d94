// Package limit counts requests and says when there are too many: GCRA (the
// leaky bucket as a meter) in Redis, shared by all processes. Each key has a
// bucket of Burst tokens that refills at Rate; a request takes one. Without
// Redis the limit goes on in each process alone, so a limit is never a reason
// for a request to fail, and for that long a caller gets at most the limit times
// the number of processes. Hold bounds in the same way what is open at once.
package limit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// Policy is one limit. Values of Rate and Burst below 1 count as 1: a mistake
// neither locks everybody out nor lets everybody in.
type Policy struct {
	// Name is shown to callers and is part of the key: letters, digits, - and _.
	Name string
	// Rate is how many requests a Period allows in the long run.
	Rate int
	// Period of Rate; 0 is a second.
	Period time.Duration
	// Burst is how many requests may come at once after a pause.
	Burst int
}

func (p Policy) effective() Policy {
	p.Rate, p.Burst = max(p.Rate, 1), max(p.Burst, 1)
	if p.Period <= 0 {
		p.Period = time.Second
	}
	return p
}

// interval is the time in which one token comes back, in nanoseconds.
func (p Policy) interval() float64 { return float64(p.Period) / float64(p.Rate) }

const (
	// patience is how long one request waits for Redis, unless SetPatience is called.
	patience = 100 * time.Millisecond
	// retryEvery is how often Redis is asked while it does not answer, by one
	// request each time.
	retryEvery = time.Second
)

// Limiter keeps limits. It is safe for concurrent use and holds nothing that
// would have to be closed.
type Limiter struct {
	client   redis.UniversalClient // nil: this process alone
	shared   *redis_rate.Limiter   // on client
	local    local
	held     held
	log      *slog.Logger
	patience time.Duration
	lifetime time.Duration // of a place

	began time.Time // what retryAt counts from, by the monotonic clock
	// retryAt is when Redis may be asked again, in nanoseconds; 0 while it answers.
	retryAt atomic.Int64
}

// New returns a limiter on client, which stays the caller's to close; without a
// client every limit is this process's own.
func New(client redis.UniversalClient, log *slog.Logger) *Limiter {
	l := &Limiter{log: log, patience: patience, lifetime: placeLifetime, began: time.Now()}
	if client != nil {
		l.client, l.shared = client, redis_rate.NewLimiter(client)
	}
	return l
}

// SetPatience sets how long a request waits for Redis, which is 100 ms without it. It
// is called before the first request.
func (l *Limiter) SetPatience(d time.Duration) { l.patience = d }

// Allow counts one request of key and says whether it is within p. Refused
// requests cost nothing; retrying delays nobody.
//
// It takes 100 ms at most (see SetPatience). When Redis does not answer in that
// time, it is left alone for a second and the limit goes on in this process, with a
// full bucket for every key; then one request asks again, and only that one waits.
// The end of ctx does not end the counting: a request that was begun is a request.
func (l *Limiter) Allow(ctx context.Context, p Policy, key string) Result {
	p = p.effective()
	key = keyOf(p.Name, key)
	if ask, probe := l.mayAsk(); ask {
		r, err := l.ask(ctx, p, key)
		if err == nil {
			if probe {
				l.back(ctx)
			}
			return r
		}
		l.away(ctx, err)
	}
	return l.local.allow(p, key)
}
