// Package cache keeps a bounded number of computed values for a while. A value that was
// evicted can always be computed again.
package cache

import (
	"sync"
	"time"
)

// Cache keeps at most a limit of values until they expire. When it is full it evicts
// some. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mutex  sync.RWMutex
	values map[K]entry[V]
	limit  int
}

type entry[V any] struct {
	value   V
	expires time.Time
}

// New returns an empty Cache of at most limit values.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{values: map[K]entry[V]{}, limit: limit}
}

// Get returns the value under key, unless it has expired at now.
func (c *Cache[K, V]) Get(key K, now time.Time) (V, bool) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	found, ok := c.values[key]
	if !ok || !now.Before(found.expires) {
		var none V
		return none, false
	}
	return found.value, true
}

// Put keeps value under key until expires.
func (c *Cache[K, V]) Put(key K, value V, expires time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.values) >= c.limit {
		// Any tenth: without all values, all would have to be computed again at once.
		evict := c.limit/10 + 1
		for key := range c.values {
			delete(c.values, key)
			if evict--; evict == 0 {
				break
			}
		}
	}
	c.values[key] = entry[V]{value, expires}
}
