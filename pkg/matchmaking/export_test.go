package matchmaking

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Plant gives a store the scripts that change returns, each for queue.lua and its source.
// It panics if change changed none: a fault that was not planted proves nothing.
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

// SetIdle changes how long an announcer must be idle to count as ended.
func (c *Confirmer) SetIdle(d time.Duration) { c.idle = d }

// MaxUnannounced is how many matches may wait to be announced before matching pauses.
const MaxUnannounced = maxUnannounced
