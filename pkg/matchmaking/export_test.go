package matchmaking

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Plant gives a store scripts that change has changed, each with queue.lua before it.
// It panics when nothing changed: a fault that is no longer there proves nothing.
func Plant(s *Store, change func(source string) string) {
	planted, changed := map[string]*redis.Script{}, false
	for name, source := range map[string]string{
		"join": joinSource, "cancel": cancelSource, "read": readSource, "match_first": firstSource, "match_near": nearSource,
	} {
		after := change(queueSource + source)
		changed = changed || after != queueSource+source
		planted[name] = redis.NewScript(after)
	}
	if !changed {
		panic("the scripts have changed: plant something else")
	}
	s.planted = func(name string) *redis.Script { return planted[name] }
}

// SetIdle changes after how long an announcer counts as ended.
func (c *Confirmer) SetIdle(d time.Duration) { c.idle = d }

// MaxUntold is how many matches may wait to be told before matching pauses.
const MaxUntold = maxUntold
