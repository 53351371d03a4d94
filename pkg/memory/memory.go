// Package memory keeps what was worked out, for a while and a bounded number of
// times: what is forgotten can always be worked out again.
package memory

import (
	"sync"
	"time"
)

// Memory keeps at most a limit of values until they expire. When it is full it
// forgets some. It is safe for concurrent use.
type Memory[V any] struct {
	mutex  sync.RWMutex
	values map[string]remembered[V]
	limit  int
}

type remembered[V any] struct {
	value   V
	expires time.Time
}

// New returns an empty Memory of at most limit values.
func New[V any](limit int) *Memory[V] {
	return &Memory[V]{values: map[string]remembered[V]{}, limit: limit}
}

// Get returns what was put under key and has not expired at now.
func (m *Memory[V]) Get(key string, now time.Time) (V, bool) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	r, ok := m.values[key]
	if !ok || !now.Before(r.expires) {
		var none V
		return none, false
	}
	return r.value, true
}

// Put keeps value under key until expires.
func (m *Memory[V]) Put(key string, value V, expires time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if len(m.values) >= m.limit {
		// Any tenth: all at once would have to be worked out again at once.
		forget := m.limit/10 + 1
		for key := range m.values {
			delete(m.values, key)
			if forget--; forget == 0 {
				break
			}
		}
	}
	m.values[key] = remembered[V]{value, expires}
}
