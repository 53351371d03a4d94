package matchmaking_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A command that meets a key of another type fails before its first write.
func TestWrongTypeChangesNothing(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	for _, c := range []struct {
		what, fails string // fails: the kinds of keys that make the command fail
		do          func(ticketID string) error
	}{
		{"join", "queue due idemp active pool", func(string) error {
			_, _, err := s.try("u_c", "rank", "k", `{"skill":1,"region":"eu"}`)
			return err
		}},
		{"cancel", "queue due ticket pool", func(id string) error { _, _, err := s.Cancel(ctx, "u_a", id); return err }},
		{"read", "queue due stats events ticket pool", func(id string) error { _, err := s.Get(ctx, "u_a", id); return err }},
		{"match", "queue due stats events pool", func(string) error { _, err := s.Match(ctx, "rank", 10); return err }},
	} {
		for _, kind := range []string{"queue", "due", "stats", "events", "ticket", "idemp", "active", "pool"} {
			kit.Must(t, s.client.FlushAll(ctx).Err())
			a := s.join("u_a", "rank", `{"skill":1,"region":"eu"}`)
			s.join("u_b", "rank", `{"skill":5000,"region":"eu"}`)
			key := map[string]string{
				"ticket": ticketKey(a), "idemp": "mm:idemp:{rank}:u_c:k", "active": "mm:active:{rank}:u_c", "pool": `mm:pool:{rank}:0:region="eu"`,
			}[kind]
			if key == "" {
				key = "mm:" + kind + ":{rank}"
			}
			had := s.client.Exists(ctx, key).Val() == 1
			if want := !strings.Contains("stats events idemp active", kind); had != want {
				t.Fatalf("%s exists: %v, want %v", key, had, want)
			}
			kit.Must(t, s.client.Del(ctx, key).Err())
			if kind == "idemp" || kind == "active" || kind == "ticket" {
				kit.Must(t, s.client.RPush(ctx, key, "a list").Err())
			} else {
				kit.Must(t, s.client.Set(ctx, key, "a text", 0).Err())
			}
			before := s.dump()
			err := c.do(a)
			if strings.Contains(c.fails, kind) != (err != nil) || err != nil && fault.Of(err) != fault.Unavailable {
				t.Errorf("%s with a %s of another type: %v", c.what, kind, err)
			}
			changed := s.changes(before)
			if c.what == "match" && kind == "pool" {
				// A pass still serves the other pools, see TestPassThatBreaksOff.
				changed = slices.DeleteFunc(changed, func(key string) bool { return key == "mm:stats:{rank}" })
			}
			if err != nil && len(changed) > 0 {
				t.Errorf("%s with a %s of another type failed and changed %v", c.what, kind, changed)
			}
		}
	}
}

// A pass that breaks off has recorded the matches that it made until then.
func TestPassThatBreaksOff(t *testing.T) {
	s := start(t)
	c := s.clock()
	a, b := s.join("u_a", "rank", `{"skill":1,"region":"eu"}`), s.join("u_b", "rank", `{"skill":1,"region":"eu"}`)
	c.pass(time.Second)
	s.join("u_c", "rank", `{"skill":1,"region":"us"}`)
	kit.Must(t, s.client.Set(t.Context(), `mm:pool:{rank}:0:region="us"`, "a text", 0).Err())
	if _, err := s.Match(t.Context(), "rank", 10); fault.Of(err) != fault.Unavailable {
		t.Errorf("the pass returned %v, want Unavailable", err)
	}
	entries := s.client.XRange(t.Context(), "mm:events:{rank}", "-", "+").Val()
	if len(entries) != 1 || len(entries[0].Values) != 1 {
		t.Fatalf("the entries are %+v, want one with one match", entries)
	}
	for user, id := range map[string]string{"u_a": a, "u_b": b} {
		got := s.get(user, id)
		if got.Status != matchmaking.Matched || entries[0].Values[got.MatchID] == nil {
			t.Errorf("%s has %+v, want a match of the entries %v", user, got.Made, entries)
		}
		for _, key := range []string{"mm:queue:{rank}", "mm:due:{rank}"} {
			if err := s.client.ZScore(t.Context(), key, id).Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("%s is still in %s: %v", user, key, err)
			}
		}
	}
}

// A ticket that vanished is swept out of the queue, and out of a pool when another ticket
// meets it there; a pool that nobody joins any more ends by its TTL.
func TestVanishedTicket(t *testing.T) {
	s := start(t)
	for _, mode := range s.Modes() {
		one, two := "u_a_"+mode, "u_b_"+mode
		a := s.join(one, mode, `{"skill":1}`)
		s.match(mode)
		kit.Must(t, s.client.Del(t.Context(), ticketKey(a)).Err())
		if list, err := s.Latest(t.Context(), one); err != nil || len(list) != 0 {
			t.Errorf("%s: the latest tickets are %+v, %v; want none", mode, list, err)
		}
		s.join(two, mode, `{"skill":1}`)
		if pass := s.match(mode); len(pass.Matches) != 0 || pass.Expired < 1 || pass.Depth != 1 {
			t.Errorf("%s: the pass did %+v, want no match, the vanished ticket swept and 1 waiting", mode, pass)
		}
		if _, err := s.Get(t.Context(), one, a); !errors.Is(err, matchmaking.ErrNotFound) {
			t.Errorf("%s: reading the vanished ticket: %v, want ErrNotFound", mode, err)
		}
		s.joinAs(one, mode, "another key", `{"skill":1}`) // allowed: the first is gone
		if pass := s.match(mode); len(pass.Matches) != 1 {
			t.Errorf("%s: the pass did %+v, want 1 match", mode, pass)
		}
	}
	s.noLeftovers("due")
}
