package matchmaking_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

func sortedNames(m map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

// matchAll makes all possible matches, announces them and delivers the notifications.
func matchAll(s *system.System) {
	s.T.Helper()
	for _, function := range []string{"match", "announce", "notify", "deliver"} {
		s.Tick(function)
	}
}

// moment parses a time of an answer, with or without trailing zeros.
func moment(t testing.TB, text any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(text))
	kit.Must(t, err)
	return at
}

// reason is why a ticket is not matched yet.
func reason(ticket map[string]any) any {
	r, _ := ticket["reason"].(map[string]any)
	return r["code"]
}

// store returns the functions' store, to use it without them.
func store(s *system.System, client redis.UniversalClient) *matchmaking.Store {
	s.T.Helper()
	set := s.Settings()
	modes, err := matchmaking.NewModes(set.MatchmakingModes, set.MatchmakingRanked, set.MatchmakingAgree)
	kit.Must(s.T, err)
	return matchmaking.NewStore(client, matchmaking.Rules{
		Modes: modes, TTL: set.MatchmakingTTL, Windows: set.MatchmakingWindows, WidenEvery: set.MatchmakingWiden, QueueLimit: set.MatchmakingQueue,
	})
}
