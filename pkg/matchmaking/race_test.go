package matchmaking_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// operations returns how many calls a race makes: usual, or MATCHMAKING_RACE if it is set
// (100000 for the full race).
func operations(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv("MATCHMAKING_RACE")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	kit.Must(t, err)
	return n
}

// race lets clients join, read, cancel and send their joins again, several for the
// same users, while matchers pass over the queues; total counts the clients' calls.
func race(s setup, total int) *journal {
	const clients, matchers, users = 24, 3, 200
	modes := s.Modes()
	j := &journal{passes: map[string]bool{}}
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	var passes, playing sync.WaitGroup
	for m := range matchers {
		passes.Go(func() {
			random := rand.New(rand.NewPCG(uint64(m), 7))
			for ctx.Err() == nil {
				pass, err := s.Match(s.t.Context(), modes[random.IntN(len(modes))], 1+random.IntN(20))
				if err != nil {
					j.say("pass: %v", err)
					return
				}
				j.mutex.Lock()
				for _, match := range pass.Matches {
					j.passes[match.ID] = true
				}
				j.mutex.Unlock()
			}
		})
	}
	for c := range clients {
		playing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			for n := range total / clients {
				switch r := j.recent(random); {
				case r == nil || random.IntN(10) < 5:
					r = &record{
						user: fmt.Sprint("u_", random.IntN(users)), mode: modes[random.IntN(len(modes))], key: fmt.Sprint(c, "-", n),
						text: fmt.Sprintf(`{"skill":%d,"region":"r%d","language":"l%d"}`, random.IntN(600), random.IntN(2), random.IntN(2)),
					}
					if j.join(s, r) && random.IntN(4) == 0 {
						j.cancel(s, r) // at once, before it is matched
					}
				case random.IntN(5) < 1:
					j.cancel(s, r)
				case random.IntN(3) < 2:
					j.read(s, r)
				default:
					j.replay(s, r)
				}
			}
		})
	}
	playing.Wait()
	stop()
	passes.Wait()
	return j
}

// However joins, cancels and passes race: a ticket is in one match at most, the two
// tickets of a match name each other, neither was cancelled, every match is in the stream
// to be announced, and no user waits twice in a mode.
func TestRacesEndWell(t *testing.T) {
	s := start(t)
	began := time.Now()
	j := race(s, operations(t, 6_000))
	took := time.Since(began)
	wrong := append(j.wrong, disagreements(s, j.records, j.passes)...)
	for _, w := range wrong[:min(len(wrong), 10)] {
		t.Error(w)
	}
	counts := map[string]int{}
	for _, r := range j.records {
		counts[r.ended]++
	}
	t.Logf("%d tickets in %s: %v", len(j.records), took.Round(time.Millisecond), counts)
	if counts[matchmaking.Matched] < len(j.records)/4 || counts[matchmaking.Cancelled] < len(j.records)/50 {
		t.Errorf("too few races: want a quarter matched and a fiftieth cancelled, have %v", counts)
	}
	s.noLeftovers("due", "pool")
}

// The check of the race notices scripts with a fault.
func TestRaceNoticesFaults(t *testing.T) {
	t.Parallel()
	const unchecked = `t.expires > now then return t, false`
	for _, fault := range []struct {
		what    string
		replace []string
	}{
		{"nobody looks at the status", []string{`not t.over and ` + unchecked, unchecked}},
		{"passes do not, and all stay in the queue", []string{
			`not t.over and ` + unchecked, `(not t.over or #ARGV > 6) and ` + unchecked, `redis.call('ZREM', queue, unpack(ids))`, ``,
		}},
		{"a user waits twice", []string{`if latest and fetch(latest) then`, `if latest and not latest then`}},
		{"a match is not announced", []string{`if #entry > 0 then redis.call('XADD'`, `if #entry > 2 then redis.call('XADD'`}},
		{"a peer is wrong", []string{`note(b, match .. a.user)`, `note(b, match .. b.user)`}},
		{"a cancelled ticket is not marked", []string{`note(ticket, 'CANCELLED')`, ``}},
		{"a replay makes another ticket", []string{`if of ~= fingerprint then return { 'REUSED' } end`, `redis.call('DEL', KEYS[6]) used = nil`, `	return { string.sub(first, -#random) == random and 'JOINED' or 'REPLAYED', first, tonumber(expires) }`, ``}},
	} {
		t.Run(fault.what, func(t *testing.T) {
			t.Parallel()
			s := startOn(t, clientOf(t, kit.Redis(t).URL()))
			matchmaking.Plant(s.Store, func(source string) string { return strings.NewReplacer(fault.replace...).Replace(source) })
			j := race(s, 1500)
			if wrong := append(j.wrong, disagreements(s, j.records, j.passes)...); len(wrong) == 0 {
				t.Error("the fault was not noticed")
			} else {
				t.Logf("noticed %d times, such as: %s", len(wrong), wrong[0])
			}
		})
	}
}
