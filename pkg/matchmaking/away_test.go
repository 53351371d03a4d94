package matchmaking_test

import (
	"errors"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// While Redis is away every call fails with Unavailable and a time to retry after. A join
// that failed leaves nothing behind, and the same join succeeds later.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := kit.StartRedis(t, dir)
	s := startOn(t, clientOf(t, server.URL()))
	a := s.join("u_a", "casual", `{}`)
	kit.Must(t, server.Stop())
	for what, do := range map[string]func() error{
		"join":   func() error { _, _, err := s.try("u_b", "rank", "k", `{"skill":1}`); return err },
		"get":    func() error { _, err := s.Get(t.Context(), "u_a", a); return err },
		"latest": func() error { _, err := s.Latest(t.Context(), "u_a"); return err },
		"cancel": func() error { _, _, err := s.Cancel(t.Context(), "u_a", a); return err },
		"match":  func() error { _, err := s.Match(t.Context(), "casual", 1); return err },
	} {
		var away *fault.Error
		if err := do(); !errors.As(err, &away) || away.Kind != fault.Unavailable || away.RetryAfter <= 0 {
			t.Errorf("%s: %v, want Unavailable and a time to retry after", what, err)
		}
	}
	again := startOn(t, clientOf(t, kit.StartRedis(t, dir).URL()))
	if got := again.get("u_a", a); got.Status != matchmaking.Queued {
		t.Errorf("after the restart the ticket is %+v, want it QUEUED", got)
	}
	if keys := again.client.Keys(t.Context(), "mm:*{rank}*").Val(); len(keys) != 0 {
		t.Errorf("a join that failed left %v", keys)
	}
	if _, replayed, err := again.try("u_b", "rank", "k", `{"skill":1}`); err != nil || replayed {
		t.Errorf("the same join: replayed %v, %v; want a new ticket", replayed, err)
	}
}
