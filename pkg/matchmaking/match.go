package matchmaking

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/id"
)

// Pass is the report of one pass over a queue.
type Pass struct {
	Mode    string
	Depth   int           // tickets that still wait
	Oldest  time.Duration // waiting time of the oldest one
	Expired int           // tickets that expired
	More    bool          // another pass has work
	Matches []PassMatch
}

// PassMatch is a match that the pass made.
type PassMatch struct {
	ID     string
	Waited [2]time.Duration // from joining to being matched, of both
}

// Match makes at most the given number of pairs (1 to MaxPairs) of a mode's queue
// in one script, and ends expired tickets. Any number of processes may call it at once.
// Errors: fault.NotFound (mode_not_found), and fault.Unavailable, after which the script
// may have made matches all the same; their events are in the stream then.
func (s *Store) Match(ctx context.Context, modeName string, pairs int) (Pass, error) {
	mode, err := s.rules.mode(modeName)
	if err != nil {
		return Pass{}, err
	}
	pairs = min(max(pairs, 1), MaxPairs)
	args := make([]any, 1, 1+2*pairs)
	args[0] = maxUnannounced
	for range pairs {
		// A match has one event, so one UUID names both.
		u := id.New()
		args = append(args, id.Text(id.Match, u), u.String())
	}
	script := nearScript
	if mode.plain() {
		script = firstScript
	}
	answer, err := s.run(ctx, script, mode, nil, args...)
	if err != nil {
		return Pass{}, err
	}
	now := number(answer[2])
	since := func(ms any) time.Duration { return time.Duration(now-number(ms)) * time.Millisecond }
	pass := Pass{
		Mode: mode.Name, Depth: int(number(answer[0])), Oldest: since(answer[1]),
		Expired: int(number(answer[3])), More: number(answer[4]) == 1,
	}
	for _, made := range answer[5].([]any) {
		m := made.([]any)
		pass.Matches = append(pass.Matches, PassMatch{text(m[0]), [2]time.Duration{since(m[1]), since(m[2])}})
	}
	return pass, nil
}
