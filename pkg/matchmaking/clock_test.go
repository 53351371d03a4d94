package matchmaking_test

import (
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// clock replaces the clock of Redis in the scripts of a test: minutes pass at once, and
// joins of one millisecond keep their order. Keys with a TTL still end in real time.
type clock struct{ s setup }

func (s setup) clock() clock {
	s.t.Helper()
	matchmaking.Plant(s.Store, clockwork)
	kit.Must(s.t, s.client.SetNX(s.t.Context(), "now", time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC).UnixMilli(), 0).Err())
	return clock{s}
}

// clockwork makes a script take the time from the test.
func clockwork(source string) string {
	source = strings.Replace(source, "local now = time[1] * 1000 + math.floor(time[2] / 1000)", "local now = tonumber(redis.call('GET', 'now'))", 1)
	return strings.Replace(source, "local micros = time[2] % 1000", "local micros = redis.call('INCR', 'joins') % 1000", 1)
}

// pass moves the clock forward by d.
func (c clock) pass(d time.Duration) {
	c.s.t.Helper()
	kit.Must(c.s.t, c.s.client.IncrBy(c.s.t.Context(), "now", d.Milliseconds()).Err())
}

func (c clock) now() time.Time {
	c.s.t.Helper()
	ms, err := c.s.client.Get(c.s.t.Context(), "now").Int64()
	kit.Must(c.s.t, err)
	return time.UnixMilli(ms).UTC()
}
