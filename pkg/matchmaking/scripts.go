package matchmaking

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed queue.lua
var queueSource string

//go:embed join.lua
var joinSource string

//go:embed cancel.lua
var cancelSource string

//go:embed read.lua
var readSource string

//go:embed match_first.lua
var firstSource string

//go:embed match_near.lua
var nearSource string

// script is one of the .lua files, with queue.lua before it.
type script struct {
	name string
	*redis.Script
}

func newScript(name, source string) script {
	return script{name, redis.NewScript(queueSource + source)}
}

var (
	joinScript   = newScript("join", joinSource)
	cancelScript = newScript("cancel", cancelSource)
	readScript   = newScript("read", readSource)
	firstScript  = newScript("match_first", firstSource)
	nearScript   = newScript("match_near", nearSource)
)

// Keys of a mode. All contain its name in braces, which puts them into one slot.
func key(kind, mode string) string     { return "mm:" + kind + ":{" + mode + "}" }
func ticketKey(mode, id string) string { return key("ticket", mode) + ":" + id }
func eventsKey(mode string) string     { return key("events", mode) }

// run runs a script on a mode's queue, with keys and arguments beyond those of
// queue.lua. Its error is fault.Unavailable.
func (s *Store) run(ctx context.Context, script script, mode Mode, keys []string, args ...any) ([]any, error) {
	keys = append([]string{key("queue", mode.Name), key("due", mode.Name), key("stats", mode.Name), eventsKey(mode.Name)}, keys...)
	args = append([]any{mode.Name, s.rules.windows(mode), s.rules.WidenEvery.Milliseconds()}, args...)
	started := time.Now()
	if s.planted != nil {
		script.Script = s.planted(script.name)
	}
	answer, err := script.Run(ctx, s.client, keys, args...).Slice()
	if s.Observe != nil {
		s.Observe(script.name, time.Since(started), err)
	}
	if err != nil {
		return nil, unreachable(err)
	}
	return answer, nil
}

// number and text read what a script returned.
func number(v any) int64 { n, _ := v.(int64); return n }
func text(v any) string  { s, _ := v.(string); return s }

func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
