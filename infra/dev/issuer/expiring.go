package issuer

import "time"

// expiringMap is a map whose entries expire and whose size is bounded, so that
// nobody can fill the issuer's memory. It is not safe for concurrent use.
type expiringMap[V any] struct {
	limit   int
	now     func() time.Time
	entries map[string]expiringEntry[V]
}

type expiringEntry[V any] struct {
	value   V
	expires time.Time
}

func newExpiringMap[V any](limit int, now func() time.Time) *expiringMap[V] {
	return &expiringMap[V]{limit: limit, now: now, entries: map[string]expiringEntry[V]{}}
}

// put stores a value until it expires. At the limit it first drops expired entries and,
// if there are none, the entry that would expire first.
func (m *expiringMap[V]) put(key string, value V, expires time.Time) {
	if _, replaces := m.entries[key]; !replaces && len(m.entries) >= m.limit {
		m.makeRoom()
	}
	m.entries[key] = expiringEntry[V]{value, expires}
}

func (m *expiringMap[V]) get(key string) (V, bool) {
	entry, ok := m.entries[key]
	if !ok || !m.now().Before(entry.expires) {
		delete(m.entries, key)
		var none V
		return none, false
	}
	return entry.value, true
}

func (m *expiringMap[V]) remove(key string) { delete(m.entries, key) }

// each calls f for every live value; f may remove entries.
func (m *expiringMap[V]) each(f func(key string, value V)) {
	now := m.now()
	for key, entry := range m.entries {
		if now.Before(entry.expires) {
			f(key, entry.value)
		}
	}
}

func (m *expiringMap[V]) makeRoom() {
	now := m.now()
	var first string
	var firstExpires time.Time
	for key, entry := range m.entries {
		if !now.Before(entry.expires) {
			delete(m.entries, key)
			continue
		}
		if first == "" || entry.expires.Before(firstExpires) {
			first, firstExpires = key, entry.expires
		}
	}
	if len(m.entries) >= m.limit {
		delete(m.entries, first)
	}
}
