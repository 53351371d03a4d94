package limit

import "time"

// SetLifetime is how long places are counted that nobody says are open.
func (l *Limiter) SetLifetime(d time.Duration) { l.lifetime = d }

const (
	Patience     = patience
	RetryEvery   = retryEvery
	MaxLocalKeys = maxLocalKeys
)

// Shared says whether Redis is believed to answer.
func (l *Limiter) Shared() bool { return l.retryAt.Load() == 0 }

// LocalKeys is how many buckets this process holds.
func (l *Limiter) LocalKeys() int {
	l.local.mutex.Lock()
	defer l.local.mutex.Unlock()
	return len(l.local.recent) + len(l.local.older)
}
