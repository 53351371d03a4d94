package auth

import (
	"sync"
	"time"
)

// memory keeps at most limit values until they expire. When it is full it
// forgets everything: what is kept can always be worked out again.
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
		clear(m.values)
	}
	m.values[key] = remembered[V]{value, expires}
}
