package matchmaking_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// In the end nothing is left of tickets, whatever happened to them: queues, dues and pools
// are empty, each ticket ended once and was counted so, and all other keys have a TTL.
func TestNothingStays(t *testing.T) {
	s := start(t)
	c := s.clock()
	random := rand.New(rand.NewPCG(5, 6))
	type own struct{ user, id string }
	var all []own
	modes := s.Modes()
	matched, expired, cancelled := 0, 0, 0
	pass := func(mode string) {
		matches, over := s.matchAll(mode, 1+random.IntN(50))
		matched, expired = matched+2*len(matches), expired+over
	}
	for i := range 600 {
		mode, user := modes[random.IntN(len(modes))], fmt.Sprint("u_", i)
		id := s.join(user, mode, fmt.Sprintf(`{"skill":%d,"region":"r%d","language":"l%d"}`, random.IntN(10_000), random.IntN(5), random.IntN(5)))
		all = append(all, own{user, id})
		switch random.IntN(8) {
		case 0:
			o := all[random.IntN(len(all))]
			if _, did, _ := s.Cancel(t.Context(), o.user, o.id); did {
				cancelled++
			}
		case 1:
			pass(mode)
		case 2:
			c.pass(time.Duration(random.IntN(15)) * time.Second)
		}
	}
	c.pass(2 * time.Minute)
	statuses := func() map[string]int {
		counts := map[string]int{}
		for _, o := range all {
			counts[s.get(o.user, o.id).Status]++
		}
		return counts
	}
	before := statuses()
	for _, mode := range modes {
		pass(mode)
	}
	after := statuses()
	want := map[string]int{matchmaking.Matched: matched, matchmaking.Expired: expired, matchmaking.Cancelled: cancelled}
	if fmt.Sprint(before) != fmt.Sprint(want) || fmt.Sprint(after) != fmt.Sprint(want) || matched == 0 || expired == 0 || cancelled == 0 {
		t.Errorf("before the last pass %v, after it %v, and passes counted %v", before, after, want)
	}
	for _, key := range s.client.Keys(t.Context(), "*").Val() {
		kind := strings.Split(key, ":")
		ttl := s.client.PTTL(t.Context(), key).Val()
		switch {
		case key == "now" || key == "joins" || kind[1] == "stats" || kind[1] == "events":
		case kind[1] == "ticket" || kind[1] == "idemp" || kind[1] == "active":
			if ttl <= 0 || ttl > 2*time.Minute+matchmaking.Kept {
				t.Errorf("%s ends after %s", key, ttl)
			}
		default:
			t.Errorf("%s is left", key)
		}
	}
}

// Every key of a ticket ends by its TTL. The ticket and its idempotency key stay for five
// minutes after it expired.
func TestEverythingEnds(t *testing.T) {
	s := start(t)
	for i, mode := range s.Modes() {
		s.join(fmt.Sprint("u_", i), mode, `{"skill":1,"region":"eu"}`)
		s.match(mode)
	}
	for _, key := range s.client.Keys(t.Context(), "*").Val() {
		ttl := s.client.PTTL(t.Context(), key).Val()
		switch kind := strings.Split(key, ":")[1]; kind {
		case "queue", "due", "stats": // bounded, and emptied by passes
		case "ticket", "idemp", "active", "pool":
			if want := 2*time.Minute + matchmaking.Kept; ttl > want || ttl < want-30*time.Second {
				t.Errorf("%s ends after %s, want %s", key, ttl, want)
			}
		default:
			t.Errorf("unknown key %s", key)
		}
	}
	// A match does not change the TTLs; a cancelled ticket is kept for retries only.
	a, b := s.joinAs("u_1", "casual", "k", `{}`), s.joinAs("u_2", "casual", "k", `{}`)
	s.match("casual") // u_0 with u_1; u_2 waits
	s.cancel("u_2", b)
	for key, want := range map[string]time.Duration{
		ticketKey(a): 2*time.Minute + matchmaking.Kept, "mm:idemp:{casual}:u_1:k": 2*time.Minute + matchmaking.Kept, "mm:active:{casual}:u_1": 2*time.Minute + matchmaking.Kept,
		ticketKey(b): matchmaking.CancelledKept, "mm:idemp:{casual}:u_2:k": matchmaking.CancelledKept, "mm:active:{casual}:u_2": matchmaking.CancelledKept,
	} {
		if ttl := s.client.PTTL(t.Context(), key).Val(); ttl > want || ttl < want-30*time.Second {
			t.Errorf("%s ends after %s, want %s", key, ttl, want)
		}
	}
	kit.Must(t, s.client.PExpire(t.Context(), ticketKey(a), time.Millisecond).Err()) // as if its TTL were over
	kit.Eventually(t, "it is gone", func() bool {
		_, err := s.Get(t.Context(), "u_1", a)
		return errors.Is(err, matchmaking.ErrNotFound)
	})
	if list, err := s.Latest(t.Context(), "u_1"); err != nil || len(list) != 1 {
		t.Errorf("the latest tickets are %+v, %v; want only the one that is left", list, err)
	}
}

// A pool lives as long as the ticket that moves into it with a wider window, not for ever.
func TestPoolOfAWiderWindowEnds(t *testing.T) {
	s := start(t)
	c := s.clock()
	id := s.join("u_a", "rank", `{"skill":1,"region":"eu"}`)
	for level := 1; level <= 2; level++ {
		s.match("rank")
		c.pass(5 * time.Second)
		s.match("rank")
		pools := s.client.Keys(t.Context(), "mm:pool:*").Val()
		if len(pools) != 2 {
			t.Errorf("level %d: %v", level, pools)
		}
		for _, pool := range pools {
			left := 2*time.Minute - time.Duration(level)*5*time.Second
			if ttl := s.client.PTTL(t.Context(), pool).Val(); !strings.Contains(pool, fmt.Sprintf(":%d:", level)) || ttl < left || ttl > left+time.Minute {
				t.Errorf("level %d: %s ends after %s; %s waits %s more", level, pool, ttl, id, left)
			}
		}
	}
}
