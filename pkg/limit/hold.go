package limit

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Places bounds how many things a key may hold open at once, such as live streams.
type Places struct {
	Name string // as in a Policy
	Most int
}

const (
	// placeLifetime is how long Redis counts a place without a refresh, and so how long
	// a killed process keeps its places.
	placeLifetime = 15 * time.Second
	// placeTries is the number of refreshes in that time, so that one may fail.
	placeTries = 3
)

// holdScript adds place ARGV[1] for ARGV[2] ms to KEYS[1], a sorted set by expiry, unless
// ARGV[3] others are open; 0 allows any number.
var holdScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if most > 0 and redis.call('ZCARD', KEYS[1]) >= most then
	return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

// Hold takes one of key's places and reports whether one was free; leave gives it back
// and may be called again. Places count for all processes, and those of a killed process
// are free after 15 s.
//
// Without Redis a key has Most places in each process. Open places stay, and are counted
// again when Redis is back, even if they are more than Most together. Hold
// and leave take 100 ms at most.
func (l *Limiter) Hold(ctx context.Context, p Places, key string) (leave func(), ok bool) {
	key = "open:" + keyOf(p.Name, key)
	if !l.held.take(key, p.Most) {
		return nil, false
	}
	h := &holding{l, key, rand.Text(), make(chan struct{}), make(chan struct{})}
	if !h.count(ctx, p.Most) {
		l.held.giveBack(key)
		return nil, false
	}
	go h.keep(context.WithoutCancel(ctx))
	return sync.OnceFunc(func() {
		close(h.left)
		<-h.given
		l.held.giveBack(key)
	}), true
}

// holding is one place.
type holding struct {
	limiter     *Limiter
	key, member string
	left, given chan struct{} // closed by leave, and when the place is free
}

// keep refreshes the place until it is left, and then frees it.
func (h *holding) keep(ctx context.Context) {
	defer close(h.given)
	refresh := time.NewTicker(h.limiter.lifetime / placeTries)
	defer refresh.Stop()
	for {
		select {
		case <-refresh.C:
			h.count(ctx, 0)
		case <-h.left:
			h.ask(ctx, func(ctx context.Context) (bool, error) {
				return true, h.limiter.client.ZRem(ctx, h.key, h.member).Err()
			})
			return
		}
	}
}

// count reports whether the place is among most; 0 counts it in any case.
func (h *holding) count(ctx context.Context, most int) bool {
	return h.ask(ctx, func(ctx context.Context) (bool, error) {
		return holdScript.Run(ctx, h.limiter.client, []string{h.key}, h.member, h.limiter.lifetime.Milliseconds(), most).Bool()
	})
}

// ask asks Redis; when that does not answer, it is true.
func (h *holding) ask(ctx context.Context, do func(context.Context) (bool, error)) bool {
	l := h.limiter
	ask, probe := l.mayAsk()
	if !ask {
		return true
	}
	ok, err := within(ctx, l.patience, do)
	if err != nil {
		l.away(ctx, err)
		return true
	}
	if probe {
		l.back(ctx)
	}
	return ok
}

// held counts the places that this process holds, by key.
type held struct {
	mutex sync.Mutex
	open  map[string]int
}

func (h *held) take(key string, most int) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.open[key] >= most {
		return false
	}
	if h.open == nil {
		h.open = map[string]int{}
	}
	h.open[key]++
	return true
}

func (h *held) giveBack(key string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.open[key]--; h.open[key] <= 0 {
		delete(h.open, key)
	}
}
