package matchmaking

import "github.com/redis/go-redis/v9"

// QueueSource is queue.lua.
func QueueSource() string { return queueSource }

// PlantQueueSource gives a store scripts that begin with another queue.lua.
func PlantQueueSource(s *Store, source string) {
	s.planted = func(name string) *redis.Script {
		return redis.NewScript(source + map[string]string{
			"join": joinSource, "cancel": cancelSource, "read": readSource, "match_first": firstSource, "match_near": nearSource,
		}[name])
	}
}
