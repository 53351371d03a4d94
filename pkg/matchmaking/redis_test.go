package matchmaking_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/test/kit"
)

func ticketKey(ticketID string) string {
	mode, _, _ := strings.Cut(ticketID, "_")
	return "mm:ticket:{" + mode + "}:" + ticketID
}

// dump returns all values in Redis, by key.
func (s setup) dump() map[string]string {
	s.t.Helper()
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	kit.Must(s.t, err)
	all := map[string]string{}
	for _, key := range keys {
		// Redis' DUMP does not serve: it has several forms of the same value.
		switch s.client.Type(s.t.Context(), key).Val() {
		case "string":
			all[key] = s.client.Get(s.t.Context(), key).Val()
		case "hash":
			all[key] = fmt.Sprint(s.client.HGetAll(s.t.Context(), key).Val())
		case "zset":
			all[key] = fmt.Sprint(s.client.ZRangeWithScores(s.t.Context(), key, 0, -1).Val())
		case "list":
			all[key] = fmt.Sprint(s.client.LRange(s.t.Context(), key, 0, -1).Val())
		case "stream":
			all[key] = fmt.Sprint(s.client.XRange(s.t.Context(), key, "-", "+").Val())
		}
	}
	return all
}

// changes returns the keys whose values differ from those in before.
func (s setup) changes(before map[string]string) []string {
	s.t.Helper()
	var changed []string
	after := s.dump()
	for key, value := range after {
		if before[key] != value {
			changed = append(changed, key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	return changed
}

// ended matches the text of a ticket that waits no more.
var ended = regexp.MustCompile("\x00(MATCHED|CANCELLED|EXPIRED)")

// noLeftovers fails the test unless the queues, and the keys of the given kinds (due and
// pool), hold only tickets that wait.
func (s setup) noLeftovers(kinds ...string) {
	s.t.Helper()
	for _, mode := range s.Modes() {
		waiting := map[string]bool{}
		ids, err := s.client.ZRange(s.t.Context(), "mm:queue:{"+mode+"}", 0, -1).Result()
		kit.Must(s.t, err)
		for _, id := range ids {
			waiting[id] = true
			if text := s.client.Get(s.t.Context(), ticketKey(id)).Val(); text == "" || ended.MatchString(text) {
				s.t.Errorf("%s is in the queue, but it is %q", id, text)
			}
		}
		for _, kind := range kinds {
			keys, err := s.client.Keys(s.t.Context(), "mm:"+kind+":{"+mode+"}*").Result()
			kit.Must(s.t, err)
			for _, key := range keys {
				members, err := s.client.ZRange(s.t.Context(), key, 0, -1).Result()
				kit.Must(s.t, err)
				for _, id := range members {
					if !waiting[id] {
						s.t.Errorf("%s does not wait, but is left in %s", id, key)
					}
				}
			}
		}
	}
}

// hook is a hook on the commands that a client sends to Redis.
type hook func(next redis.ProcessHook) redis.ProcessHook

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
