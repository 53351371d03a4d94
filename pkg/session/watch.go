package session

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// watchEvery is how often watched sessions are looked for.
	watchEvery = time.Second / 2
	// watchBatch is the number of sessions looked for in one round trip.
	watchBatch = 500
)

// watches are the sessions whose end somebody in this process waits for.
type watches struct {
	mutex  sync.Mutex
	all    map[*watch]struct{}
	active bool // something looks for them
}

type watch struct {
	key   string
	ended func()
}

// Watch calls ended when the session of a cookie does not exist any more, about half a
// second later, until stop is called; ended may be called more than once, and once more
// while stop returns. While Redis does not answer, nothing has ended. It neither opens the
// session nor extends its idle limit.
//
// All watched sessions of a process are looked for together.
func (s *Store) Watch(cookie string, ended func()) (stop func()) {
	p, ok := find(cookie)
	if !ok {
		ended()
		return func() {}
	}
	w := &watch{p.key, ended}
	s.watches.mutex.Lock()
	defer s.watches.mutex.Unlock()
	if s.watches.all == nil {
		s.watches.all = map[*watch]struct{}{}
	}
	s.watches.all[w] = struct{}{}
	if !s.watches.active {
		s.watches.active = true
		go s.watch()
	}
	return func() {
		s.watches.mutex.Lock()
		defer s.watches.mutex.Unlock()
		delete(s.watches.all, w)
	}
}

// watch looks for the watched sessions while there are any.
func (s *Store) watch() {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	for range look.C {
		all := s.watches.list()
		if len(all) == 0 {
			return
		}
		for batch := range slices.Chunk(all, watchBatch) {
			s.lookFor(batch)
		}
	}
}

// list returns the watches; without any, nobody looks for them any more.
func (w *watches) list() []*watch {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.active = len(w.all) > 0
	return slices.Collect(maps.Keys(w.all))
}

// lookFor ends the watches whose session Redis does not have.
func (s *Store) lookFor(batch []*watch) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	pipe := s.client.Pipeline()
	found := make([]*redis.IntCmd, len(batch))
	for i, w := range batch {
		found[i] = pipe.Exists(ctx, w.key)
	}
	_ = execute(ctx, pipe) // each command has its own error
	for i, w := range batch {
		if n, err := found[i].Result(); err == nil && n == 0 {
			w.ended()
		}
	}
}
