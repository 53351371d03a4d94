package matchmaking

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed consumers.lua
var consumersSource string

var consumersScript = redis.NewScript(consumersSource)

const (
	// consumerIdle is how long an announcer has not asked for matches when its consumer
	// is deleted. A running one asks every second, or at least every few minutes; one
	// that asks again later gets a new consumer by that.
	consumerIdle = 10 * time.Minute
	// maxConsumersDeleted bounds one script.
	maxConsumersDeleted = 1000
)

// deleteConsumers removes those of processes that ended, in whichever way.
func (s *Store) deleteConsumers(ctx context.Context, mode string, idle time.Duration) (deleted int, err error) {
	deleted, err = consumersScript.Run(ctx, s.client, []string{eventsKey(mode)}, group, idle.Milliseconds(), maxConsumersDeleted).Int()
	if err != nil {
		return 0, unreachable(err)
	}
	return deleted, nil
}
