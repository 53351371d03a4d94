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
	// consumerIdle is the idle time after which an announcer's consumer is deleted. A
	// running announcer reads every second, or at least every few minutes; one that
	// reads again later gets a new consumer.
	consumerIdle = 10 * time.Minute
	// maxConsumersDeleted bounds one script.
	maxConsumersDeleted = 1000
)

// deleteConsumers removes the consumers of processes that ended.
func (s *Store) deleteConsumers(ctx context.Context, mode string, idle time.Duration) (deleted int, err error) {
	deleted, err = consumersScript.Run(ctx, s.client, []string{eventsKey(mode)}, group, idle.Milliseconds(), maxConsumersDeleted).Int()
	if err != nil {
		return 0, unreachable(err)
	}
	return deleted, nil
}
