package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLocalKeys bounds the memory of a limiter to some 3 MB.
const maxLocalKeys = 10_000

// bucketKey contains the policy, so a changed policy gets a new bucket.
type bucketKey struct {
	policy Policy
	key    string
}

// local counts in this process. Buckets live in two generations: when the recent one is
// full, it becomes the older one, and buckets that were not used meanwhile are dropped. A
// busy key is never dropped, however many others come.
type local struct {
	mutex         sync.Mutex
	recent, older map[bucketKey]*rate.Limiter
}

func (l *local) allow(p Policy, key string) Result {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	b := l.bucket(bucketKey{p, key})
	// Under the lock: a rate.Limiter counts the time between two calls twice if their
	// times are out of order.
	now := time.Now()
	allowed := b.AllowN(now, 1)
	return newResult(p, allowed, b.TokensAt(now))
}

func (l *local) bucket(k bucketKey) *rate.Limiter {
	if b := l.recent[k]; b != nil {
		return b
	}
	b := l.older[k]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(float64(time.Second)/k.policy.interval()), k.policy.Burst)
	}
	if l.recent == nil || len(l.recent) >= maxLocalKeys/2 {
		l.recent, l.older = map[bucketKey]*rate.Limiter{}, l.recent
	}
	l.recent[k] = b
	return b
}
