// Package limit bounds the rate of requests: GCRA (the leaky bucket as a meter) in
// Redis, shared by all processes. Each key has a bucket of Burst tokens that refills at
// Rate; a request takes one token. Without Redis each process limits by itself, so an
// outage fails no request, and meanwhile a caller gets at most the limit times the number
// of processes. Hold bounds in the same way how many things are open at once.
package limit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/cache"
)

// Policy is one limit. Values of Rate and Burst below 1 count as 1, so that a mistake
// neither locks all callers out nor lets all requests in.
type Policy struct {
	// Name is shown to callers and is part of the key: letters, digits, - and _.
	Name string
	// Rate is the number of requests per Period in the long run.
	Rate int
	// Period of Rate; 0 is a second.
	Period time.Duration
	// Burst is the number of requests that may come at once after a pause.
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
	// retryEvery is how often one request asks Redis again while it does not answer.
	retryEvery = time.Second
)

// Limiter enforces limits. It is safe for concurrent use and needs no Close.
type Limiter struct {
	client   redis.UniversalClient // nil: this process alone
	shared   *redis_rate.Limiter   // on client
	local    local
	refused  *cache.Cache[bucketKey, refusal] // by Redis
	held     held
	log      *slog.Logger
	patience time.Duration
	lifetime time.Duration // of a place

	began time.Time // origin of retryAt, by the monotonic clock
	// retryAt is when Redis may be asked again, in nanoseconds; 0 while it answers.
	retryAt atomic.Int64
}

// New returns a limiter on client, which the caller closes; without a client this
// process limits alone. The client must end its commands with their context
// (ContextTimeoutEnabled).
func New(client redis.UniversalClient, log *slog.Logger) *Limiter {
	l := &Limiter{log: log, patience: patience, lifetime: placeLifetime, began: time.Now(), refused: cache.New[bucketKey, refusal](maxLocalKeys / 2)}
	if client != nil {
		l.client, l.shared = client, redis_rate.NewLimiter(client)
	}
	return l
}

// SetPatience sets how long a request waits for Redis, by default 100 ms. Call it before
// the first request.
func (l *Limiter) SetPatience(d time.Duration) { l.patience = d }

// Allow counts one request of key and says whether it is within p. Refused requests cost
// nothing: a caller that retries early does not wait longer.
//
// A key that Redis refused is refused without asking again until its RetryAfter is over:
// a flood costs Redis no more than its allowed part.
//
// It takes 100 ms at most (see SetPatience). If Redis does not answer in that time, this
// process limits alone for a second, with a full bucket for every key; then one request
// asks Redis again, and only that one waits. The end of ctx does not stop the counting: a
// request that has begun counts.
func (l *Limiter) Allow(ctx context.Context, p Policy, key string) Result {
	p = p.effective()
	key = keyOf(p.Name, key)
	now := time.Now()
	if r, ok := l.refused.Get(bucketKey{p, key}, now); ok {
		return r.at(now)
	}
	if ask, probe := l.mayAsk(); ask {
		r, err := l.ask(ctx, p, key)
		if err == nil {
			if probe {
				l.back(ctx)
			}
			if !r.Allowed { // the time of the answer would add its way to each wait
				l.refused.Put(bucketKey{p, key}, refusal{r, now}, now.Add(r.RetryAfter))
			}
			return r
		}
		l.away(ctx, err)
	}
	return l.local.allow(p, key)
}
