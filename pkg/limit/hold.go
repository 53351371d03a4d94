package limit

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
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
// ARGV[3] others are open; 0 allows any number, for a refresh.
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
// takes 100 ms at most, and leave twice that.
func (l *Limiter) Hold(ctx context.Context, p Places, key string) (leave func(), ok bool) {
	key = "open:" + keyOf(p.Name, key)
	if !l.held.take(key, p.Most) {
		return nil, false
	}
	own := &place{key, rand.Text()}
	if !l.count(ctx, own, p.Most) {
		l.held.giveBack(key)
		return nil, false
	}
	if l.held.put(own) {
		go l.refresh()
	}
	return sync.OnceFunc(func() {
		l.held.drop(own)
		l.askAboutPlaces(ctx, func(ctx context.Context) (bool, error) {
			return true, l.client.ZRem(ctx, key, own.member).Err()
		})
		l.held.giveBack(key)
	}), true
}

// place is one that is held.
type place struct{ key, member string }

// refreshBatch is the number of places refreshed in one round trip, which takes about a
// millisecond: it has no more time than any other.
const refreshBatch = 50

// refresh refreshes all places of this process together, while there are any.
func (l *Limiter) refresh() {
	every := time.NewTicker(l.lifetime / placeTries)
	defer every.Stop()
	for range every.C {
		places := l.held.all()
		if len(places) == 0 {
			return
		}
		for batch := range slices.Chunk(places, refreshBatch) {
			l.held.refreshing.Lock()
			l.refreshAll(l.held.still(batch))
			l.held.refreshing.Unlock()
		}
	}
}

func (l *Limiter) refreshAll(places []*place) {
	if len(places) == 0 {
		return
	}
	l.askAboutPlaces(context.Background(), func(ctx context.Context) (bool, error) {
		pipe := l.client.Pipeline()
		for _, p := range places {
			holdScript.Eval(ctx, pipe, []string{p.key}, p.member, l.lifetime.Milliseconds(), 0)
		}
		_, err := pipe.Exec(ctx)
		return true, err
	})
}

// count reports whether the place is among most.
func (l *Limiter) count(ctx context.Context, p *place, most int) bool {
	return l.askAboutPlaces(ctx, func(ctx context.Context) (bool, error) {
		return holdScript.Run(ctx, l.client, []string{p.key}, p.member, l.lifetime.Milliseconds(), most).Bool()
	})
}

// askAboutPlaces asks Redis; when that does not answer, it is true.
func (l *Limiter) askAboutPlaces(ctx context.Context, do func(context.Context) (bool, error)) bool {
	ask, probe := l.mayAsk()
	if !ask {
		return true
	}
	ctx, cancel := l.patient(ctx)
	defer cancel()
	ok, err := do(ctx)
	if err != nil {
		l.away(ctx, err)
		return true
	}
	if probe {
		l.back(ctx)
	}
	return ok
}

// held are the places that this process holds.
type held struct {
	mutex  sync.Mutex
	open   map[string]int      // how many, by key
	places map[*place]struct{} // those that are refreshed
	active bool                // something refreshes them
	// refreshing is held during a round trip that refreshes places: one that is left in
	// the meantime would come back.
	refreshing sync.Mutex
}

// put has a place refreshed, and reports whether somebody must begin to do so.
func (h *held) put(p *place) (first bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.places == nil {
		h.places = map[*place]struct{}{}
	}
	h.places[p] = struct{}{}
	first, h.active = !h.active, true
	return first
}

// drop ends the refreshing of a place, also of one that is refreshed now.
func (h *held) drop(p *place) {
	h.mutex.Lock()
	delete(h.places, p)
	h.mutex.Unlock()
	h.refreshing.Lock()
	h.refreshing.Unlock() //nolint:staticcheck // it only waits
}

// all returns the places to refresh; without any, nobody refreshes them any more.
func (h *held) all() []*place {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.active = len(h.places) > 0
	return slices.Collect(maps.Keys(h.places))
}

// still returns those of places that were not dropped.
func (h *held) still(places []*place) (kept []*place) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, p := range places {
		if _, ok := h.places[p]; ok {
			kept = append(kept, p)
		}
	}
	return kept
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
