package auth

import (
	"sync"
	"time"
)

// memory keeps at most limit values until they expire. When it is full it
// forgets some: what is kept can always be worked out again.
type memory[V any] struct {
	mutex  sync.RWMutex
	values map[string]remembered[V]
	limit  int
}

type remembered[V any] struct {
	value   V
	expires time.Time
}

func newMemory[V any](limit int) *memory[V] {
	return &memory[V]{values: map[string]remembered[V]{}, limit: limit}
}

func (m *memory[V]) get(key string, now time.Time) (V, bool) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	r, ok := m.values[key]
	if !ok || !now.Before(r.expires) {
		var none V
		return none, false
	}
	return r.value, true
}

func (m *memory[V]) put(key string, value V, expires time.Time) {
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
