package limit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// ask counts the request in Redis, or fails within l.patience.
func (l *Limiter) ask(ctx context.Context, p Policy, key string) (Result, error) {
	ctx, cancel := l.patient(ctx)
	defer cancel()
	counted, err := l.shared.Allow(ctx, key, redis_rate.Limit{Rate: p.Rate, Burst: p.Burst, Period: p.Period})
	if err != nil {
		return Result{}, err
	}
	// Not its Remaining: the script truncates tokens that rounding left a little below a
	// whole.
	tokens := float64(p.Burst) - float64(counted.ResetAfter)/p.interval()
	return newResult(p, counted.Allowed > 0, tokens), nil
}

// refusal is a Result that was true at began.
type refusal struct {
	Result
	began time.Time
}

func (r refusal) at(now time.Time) Result {
	passed := now.Sub(r.began)
	r.RetryAfter, r.Reset = r.RetryAfter-passed, r.Reset-passed
	return r.Result
}

// patient bounds one command. It is not the request's own deadline: a client that hangs up
// would look like a Redis that does not answer, and would cost its connection.
func (l *Limiter) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.patience)
}

// mayAsk returns whether this request may ask Redis, and whether it is the probe that
// finds out if Redis is back.
func (l *Limiter) mayAsk() (ask, probe bool) {
	if l.shared == nil {
		return false, false
	}
	at := l.retryAt.Load()
	if at == 0 {
		return true, false
	}
	now := l.now()
	if now < at {
		return false, false
	}
	probe = l.retryAt.CompareAndSwap(at, now+int64(retryEvery))
	return probe, probe
}

func (l *Limiter) away(ctx context.Context, err error) {
	if l.retryAt.Swap(l.now()+int64(retryEvery)) == 0 {
		l.log.WarnContext(ctx, "rate limits are each process's own: redis does not answer", "error", err)
	}
}

// back is for the probe only: an answer to an earlier request does not mean that Redis
// answers now.
func (l *Limiter) back(ctx context.Context) {
	if l.retryAt.Swap(0) != 0 {
		l.log.InfoContext(ctx, "rate limits are shared again: redis answers")
	}
}

func (l *Limiter) now() int64 { return int64(time.Since(l.began)) }

// maxKeyBytes is the length up to which a key is stored unchanged.
const maxKeyBytes = 64

// keyOf returns the Redis key of key's bucket, before which redis_rate puts "rate:". The
// braces put it into one cluster slot and isolate callers' input. A long or unusual key
// becomes its SHA-256, marked by a # that no plain key has.
func keyOf(name, key string) string {
	if len(key) > maxKeyBytes || strings.IndexFunc(key, strange) >= 0 {
		sum := sha256.Sum256([]byte(key))
		key = "#" + hex.EncodeToString(sum[:])
	}
	return "limit:{" + name + ":" + key + "}"
}

func strange(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:/@+=|", r):
		return false
	}
	return true
}
