package matchmaking_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// A ticket whose time is over is matched with nobody, and counts as expired once.
func TestExpired(t *testing.T) {
	s := start(t, func(r *matchmaking.Rules) { r.TTL = time.Second })
	for _, mode := range []string{"casual", "rank", "regional"} {
		a := s.join("u_a", mode, `{"skill":100,"region":"eu"}`)
		eventually(t, "the ticket expires", func() bool { return s.get("u_a", a).Status == matchmaking.Expired })
		b := s.join("u_b", mode, `{"skill":100,"region":"eu"}`)
		if pass := s.match(mode); pass.Expired != 1 || len(pass.Matches) != 0 || pass.Depth != 1 {
			t.Errorf("%s: %+v", mode, pass)
		}
		if pass := s.match(mode); pass.Expired != 0 {
			t.Errorf("%s, again: %+v", mode, pass)
		}
		if ticket, cancelled, err := s.Cancel(t.Context(), "u_a", a); err != nil || cancelled || ticket.Status != matchmaking.Expired {
			t.Errorf("%s: cancelled %v: %+v, %v", mode, cancelled, ticket, err)
		}
		if ticket := s.get("u_b", b); ticket.Status != matchmaking.Queued {
			t.Errorf("%s: %+v", mode, ticket)
		}
		// Who expired may join again.
		if again := s.join2("u_a", mode, "another key", `{"skill":100,"region":"eu"}`); again == a {
			t.Error("the same ticket")
		}
		noLeftovers(s, "mm:pool:")
	}
}

// Whatever a ticket left ends by itself, and the ticket can be read for five minutes.
func TestEverythingEnds(t *testing.T) {
	s := start(t)
	for i, mode := range []string{"casual", "rank", "regional"} {
		s.join(fmt.Sprint("u_", i), mode, `{"skill":1,"region":"eu"}`)
		s.match(mode)
	}
	keys, err := s.client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		ttl := s.client.PTTL(t.Context(), key).Val()
		switch kind := strings.Split(key, ":")[1]; kind {
		case "queue", "due", "stats": // bounded, and emptied by passes
		case "ticket", "idemp", "active", "pool":
			if want := 2*time.Minute + matchmaking.Kept; ttl > want || ttl < want-10*time.Second {
				t.Errorf("%s ends after %s, want %s", key, ttl, want)
			}
		default:
			t.Errorf("what is %s?", key)
		}
	}
}

// A ticket that vanished is swept out of the queue, and of a pool when somebody meets
// it there; a pool that nobody joins any more ends by itself.
func TestVanishedTicket(t *testing.T) {
	s := start(t)
	for _, mode := range []string{"casual", "rank"} {
		a := s.join("u_a", mode, `{"skill":1}`)
		s.match(mode)
		if err := s.client.Del(t.Context(), "mm:ticket:{"+mode+"}:"+a).Err(); err != nil {
			t.Fatal(err)
		}
		s.join("u_b", mode, `{"skill":1}`)
		if pass := s.match(mode); len(pass.Matches) != 0 || pass.Expired < 1 || pass.Depth != 1 {
			t.Errorf("%s: %+v", mode, pass)
		}
		noLeftovers(s)
		if _, err := s.Get(t.Context(), "u_a", a); !errors.Is(err, matchmaking.ErrNotFound) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// A script that meets a key of another type changes nothing.
func TestWrongTypeChangesNothing(t *testing.T) {
	for _, kind := range []string{"queue", "due", "stats", "events"} {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			s.join("u_a", "rank", `{"skill":1}`)
			b := s.join("u_b", "rank", `{"skill":5000}`)
			s.client.Del(t.Context(), "mm:"+kind+":{rank}")
			s.client.Set(t.Context(), "mm:"+kind+":{rank}", "text", 0)
			before := s.dump()
			_, matchErr := s.Match(t.Context(), "rank", 10)
			_, _, joinErr := s.Join(t.Context(), matchmaking.Join{UserID: "u_c", Mode: "rank", Key: "k", Attributes: attributes(t, `{"skill":1}`)})
			for what, err := range map[string]error{"match": matchErr, "join": joinErr} {
				// A join reads neither stats nor events.
				if needed := what == "match" || kind == "queue" || kind == "due"; needed && fault.Of(err) != fault.Unavailable {
					t.Errorf("%s: %v", what, err)
				}
			}
			after := s.dump()
			if kind == "queue" || kind == "due" {
				if before != after {
					t.Errorf("it changed\n%s\nto\n%s", before, after)
				}
			}
			if ticket := s.client.HGet(t.Context(), "mm:ticket:{rank}:"+b, "status").Val(); ticket != matchmaking.Queued {
				t.Errorf("the ticket is %q", ticket)
			}
		})
	}
}

func TestJoinAgain(t *testing.T) {
	s := start(t, func(r *matchmaking.Rules) { r.QueueLimit = 2 })
	join := func(user, key, text string) (matchmaking.Joined, bool, error) {
		return s.Join(t.Context(), matchmaking.Join{UserID: user, Mode: "casual", Key: key, Attributes: attributes(t, text)})
	}
	first, replayed, err := join("u_a", "k1", `{"a":1,"b":"x"}`)
	if err != nil || replayed {
		t.Fatalf("%v %v", replayed, err)
	}
	again, replayed, err := join("u_a", "k1", `{"b":"x","a":1.0}`)
	if err != nil || !replayed || again != first {
		t.Errorf("%+v %v %v", again, replayed, err)
	}
	if _, _, err := join("u_a", "k1", `{"a":2}`); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("%v", err)
	}
	if _, _, err := join("u_a", "k2", `{}`); fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), first.TicketID) {
		t.Errorf("%v", err)
	}
	if _, _, err := join("u_b", "k1", `{}`); err != nil {
		t.Errorf("another's key: %v", err)
	}
	if _, _, err := join("u_c", "k1", `{}`); !errors.Is(err, matchmaking.ErrFull) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Cancel(t.Context(), "u_b", first.TicketID); !errors.Is(err, matchmaking.ErrNotFound) {
		t.Errorf("another's ticket: %v", err)
	}
	for i := range 2 {
		if ticket, cancelled, err := s.Cancel(t.Context(), "u_a", first.TicketID); err != nil || cancelled != (i == 0) || ticket.Status != matchmaking.Cancelled {
			t.Errorf("%+v %v %v", ticket, cancelled, err)
		}
	}
	if _, replayed, err = join("u_a", "k1", `{"a":1,"b":"x"}`); err != nil || !replayed {
		t.Errorf("after it was cancelled: %v %v", replayed, err)
	}
	s.join2("u_a", "casual", "k3", `{}`)
	if pass := s.match("casual"); len(pass.Matches) != 1 {
		t.Fatalf("%+v", pass)
	}
	list, err := s.Latest(t.Context(), "u_a")
	if err != nil || len(list) != 1 || list[0].Status != matchmaking.Matched {
		t.Fatalf("%+v %v", list, err)
	}
	if _, _, err := s.Cancel(t.Context(), "u_a", list[0].ID); !errors.Is(err, matchmaking.ErrMatched) {
		t.Errorf("%v", err)
	}
	for _, id := range []string{"", "x", "casual_x", "other_01h455vb4pex5vsknk084sn02q", "rank" + list[0].ID[len("casual"):]} {
		if _, err := s.Get(t.Context(), "u_a", id); !errors.Is(err, matchmaking.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
