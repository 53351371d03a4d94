package matchmaking

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/id"
)

// Pass is what one pass over a queue did and saw.
type Pass struct {
	Mode    string
	Depth   int           // tickets that wait now
	Oldest  time.Duration // how long the oldest of them has waited
	Expired int           // tickets whose time was over
	More    bool          // another pass has something to do
	Matches []PassMatch
}

// PassMatch is a match that was made.
type PassMatch struct {
	ID     string
	Waited [2]time.Duration // from joining to being matched, of both
}

// Match makes at most the given number of pairs (1 to MaxPairs) of a mode's queue
// in one script, and ends tickets whose time is over. Any number of processes may
// call it at once. Errors: fault.NotFound (mode_not_found), fault.Unavailable; then it may have made
// matches all the same, and their events are in the stream.
func (s *Store) Match(ctx context.Context, modeName string, pairs int) (Pass, error) {
	mode, err := s.rules.mode(modeName)
	if err != nil {
		return Pass{}, err
	}
	pairs = min(max(pairs, 1), MaxPairs)
	args := make([]any, 1, 1+2*pairs)
	args[0] = maxUntold
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
