package matchmaking_test

import (
	"errors"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// While Redis is away everything says so, and when to come again; no ticket is made
// in part, and the same join then makes it.
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
			t.Errorf("%s: %v", what, err)
		}
	}
	again := startOn(t, clientOf(t, kit.StartRedis(t, dir).URL()))
	if got := again.get("u_a", a); got.Status != matchmaking.Queued {
		t.Errorf("%+v", got)
	}
	if keys := again.client.Keys(t.Context(), "mm:*{rank}*").Val(); len(keys) != 0 {
		t.Errorf("left of a join that failed: %v", keys)
	}
	if _, replayed, err := again.try("u_b", "rank", "k", `{"skill":1}`); err != nil || replayed {
		t.Errorf("the same join: %v %v", replayed, err)
	}
}
