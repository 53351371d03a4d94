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

// A join that is sent again gets the same answer, whatever became of its ticket. Another
// join is refused while the first ticket waits.
func TestJoinAgain(t *testing.T) {
	s := start(t)
	first, replayed, err := s.try("u_a", "casual", "k1", `{"a":1,"b":"x"}`)
	if err != nil || replayed || first.Status != matchmaking.Queued || !strings.HasPrefix(first.TicketID, "casual_") {
		t.Fatalf("the first join answered %+v, replayed %v, %v; want a new ticket", first, replayed, err)
	}
	replays := func(when string) {
		t.Helper()
		if again, replayed, err := s.try("u_a", "casual", "k1", `{"b":"x","a":1.0}`); err != nil || !replayed || again != first {
			t.Errorf("sent again %s: %+v, replayed %v, %v; want %+v", when, again, replayed, err, first)
		}
	}
	replays("while it waits")
	if _, _, err := s.try("u_a", "casual", "k1", `{"a":2,"b":"x"}`); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("another body with the same key: %v, want ErrReused", err)
	}
	var refused *fault.Error
	if _, _, err := s.try("u_a", "casual", "k2", `{}`); !errors.As(err, &refused) || refused.Code != "ticket_queued" || refused.Kind != fault.Conflict ||
		!strings.Contains(refused.Detail, first.TicketID) {
		t.Errorf("a second join: %v, want ticket_queued with the first ticket", err)
	}
	// Keys belong to a user and a mode.
	for _, other := range []struct{ user, mode string }{{"u_b", "casual"}, {"u_a", "regional"}} {
		if joined, replayed, err := s.try(other.user, other.mode, "k1", `{"c":3}`); err != nil || replayed || joined.TicketID == first.TicketID {
			t.Errorf("%v with the same key: %+v, replayed %v, %v; want a new ticket", other, joined, replayed, err)
		}
	}
	s.match("casual") // with u_b
	replays("after it was matched")
	second := s.joinAs("u_a", "casual", "k2", `{}`) // a refused join does not use its key
	replays("beside another one")
	s.cancel("u_a", second)
	if joined, replayed, err := s.try("u_a", "casual", "k2", `{}`); err != nil || !replayed || joined.TicketID != second {
		t.Errorf("sent again after it was cancelled: %+v, replayed %v, %v; want ticket %s", joined, replayed, err, second)
	}
	if list, err := s.Latest(t.Context(), "u_a"); err != nil || len(list) != 2 || list[0].ID != second || list[0].Status != matchmaking.Cancelled || list[1].Mode != "regional" {
		t.Errorf("the latest tickets are %+v, %v; want the cancelled one and that in regional", list, err)
	}
	if list, err := s.Latest(t.Context(), "u_nobody"); err != nil || list == nil || len(list) != 0 {
		t.Errorf("the latest tickets of nobody are %+v, %v; want an empty list", list, err)
	}
}

// A Redis client that missed the answer and sends the same command again joins once, and
// gets the first answer.
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
			t.Errorf("%s: the join answered %+v, replayed %v, %v; want a new ticket", mode, joined, replayed, err)
		}
		if n := s.client.ZCard(t.Context(), "mm:queue:{"+mode+"}").Val(); n != 1 {
			t.Errorf("%s: %d tickets, want 1", mode, n)
		}
		if got := s.get("u_a", joined.TicketID); got.Status != matchmaking.Queued || !got.ExpiresAt.Equal(joined.ExpiresAt) {
			t.Errorf("%s: the ticket is %+v, want it QUEUED until %s", mode, got, joined.ExpiresAt)
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
		t.Errorf("joining a full queue: %v, want ErrFull and a time to retry after", err)
	}
	if changed := s.changes(before); len(changed) > 0 {
		t.Errorf("the refused join changed %v", changed)
	}
	if _, replayed, err := s.try("u_a", "casual", "k-u_a", `{}`); err != nil || !replayed {
		t.Errorf("a join sent again to a full queue: replayed %v, %v; want the first answer", replayed, err)
	}
	s.join("u_c", "regional", `{}`) // another queue
	s.cancel("u_a", a)
	s.joinAs("u_c", "casual", "k", `{}`)
}
