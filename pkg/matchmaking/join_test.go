package matchmaking_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// The same join again is answered the same, whatever became of its ticket; another
// one is refused while the first waits.
func TestJoinAgain(t *testing.T) {
	s := start(t)
	first, replayed, err := s.try("u_a", "casual", "k1", `{"a":1,"b":"x"}`)
	if err != nil || replayed || first.Status != matchmaking.Queued || !strings.HasPrefix(first.TicketID, "casual_") {
		t.Fatalf("%+v %v %v", first, replayed, err)
	}
	replays := func(when string) {
		t.Helper()
		if again, replayed, err := s.try("u_a", "casual", "k1", `{"b":"x","a":1.0}`); err != nil || !replayed || again != first {
			t.Errorf("%s: %+v %v %v", when, again, replayed, err)
		}
	}
	replays("while it waits")
	if _, _, err := s.try("u_a", "casual", "k1", `{"a":2,"b":"x"}`); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("another body: %v", err)
	}
	var refused *fault.Error
	if _, _, err := s.try("u_a", "casual", "k2", `{}`); !errors.As(err, &refused) || refused.Code != "ticket_queued" || refused.Kind != fault.Conflict ||
		!strings.Contains(refused.Detail, first.TicketID) {
		t.Errorf("a second one: %v", err)
	}
	// Keys belong to a user and a mode.
	for _, other := range []struct{ user, mode string }{{"u_b", "casual"}, {"u_a", "regional"}} {
		if joined, replayed, err := s.try(other.user, other.mode, "k1", `{"c":3}`); err != nil || replayed || joined.TicketID == first.TicketID {
			t.Errorf("%v: %+v %v %v", other, joined, replayed, err)
		}
	}
	s.match("casual") // with u_b
	replays("after it was matched")
	second := s.joinAs("u_a", "casual", "k2", `{}`) // its key was refused, so it is free
	replays("beside another one")
	s.cancel("u_a", second)
	if joined, replayed, err := s.try("u_a", "casual", "k2", `{}`); err != nil || !replayed || joined.TicketID != second {
		t.Errorf("after it was cancelled: %+v %v %v", joined, replayed, err)
	}
	if list, err := s.Latest(t.Context(), "u_a"); err != nil || len(list) != 2 || list[0].ID != second || list[0].Status != matchmaking.Cancelled || list[1].Mode != "regional" {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := s.Latest(t.Context(), "u_nobody"); err != nil || list == nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// A client that missed the answer and sends the same command again joins once, and
// is answered as if nothing had happened.
func TestJoinSentTwice(t *testing.T) {
	s := start(t)
	s.client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				_ = next(ctx, redis.NewCmd(ctx, cmd.Args()...))
			}
			return next(ctx, cmd)
		}
	}))
	for _, mode := range s.Modes() {
		joined, replayed, err := s.try("u_a", mode, "k", `{"skill":1}`)
		if err != nil || replayed {
			t.Errorf("%s: %+v %v %v", mode, joined, replayed, err)
		}
		if n := s.client.ZCard(t.Context(), "mm:queue:{"+mode+"}").Val(); n != 1 {
			t.Errorf("%s: %d tickets", mode, n)
		}
		if got := s.get("u_a", joined.TicketID); got.Status != matchmaking.Queued || !got.ExpiresAt.Equal(joined.ExpiresAt) {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}

func TestQueueLimit(t *testing.T) {
	s := start(t, func(r *matchmaking.Rules) { r.QueueLimit = 2 })
	a := s.join("u_a", "casual", `{}`)
	s.join("u_b", "casual", `{}`)
	before := s.dump()
	_, _, err := s.try("u_c", "casual", "k", `{}`)
	var full *fault.Error
	if !errors.Is(err, matchmaking.ErrFull) || !errors.As(err, &full) || full.Kind != fault.Unavailable || full.RetryAfter <= 0 {
		t.Errorf("%v", err)
	}
	if changed := s.changes(before); len(changed) > 0 {
		t.Errorf("it changed %v", changed)
	}
	if _, replayed, err := s.try("u_a", "casual", "k-u_a", `{}`); err != nil || !replayed {
		t.Errorf("a replay: %v %v", replayed, err)
	}
	s.join("u_c", "regional", `{}`) // another queue
	s.cancel("u_a", a)
	s.joinAs("u_c", "casual", "k", `{}`)
}
