package limit

import "time"

// SetLifetime sets how long a place is counted without being refreshed.
func (l *Limiter) SetLifetime(d time.Duration) { l.lifetime = d }

const (
	Patience     = patience
	RetryEvery   = retryEvery
	MaxLocalKeys = maxLocalKeys
)

// Shared reports whether the limiter asks Redis, rather than counts by itself.
func (l *Limiter) Shared() bool { return l.retryAt.Load() == 0 }

// LocalKeys returns how many buckets this process holds.
func (l *Limiter) LocalKeys() int {
	l.local.mutex.Lock()
	defer l.local.mutex.Unlock()
	return len(l.local.recent) + len(l.local.older)
}
