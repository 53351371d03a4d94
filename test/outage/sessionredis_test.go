package outage_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Sessions, limits and open streams may have their own Redis: queues that fill theirs
// sign nobody out, and a process is ready only with those that its function needs.
func TestSessionsInARedisOfTheirOwn(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	own := kit.StartRedis(t, t.TempDir())
	s := system.StartAt(t, i, "SESSION_REDIS_URL="+own.URL())
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	v.QueueUp("casual", "{}")
	alice := i.Fresh(t, "alice", nil)
	a, _ := s.OpenStream(alice)
	system.WantStatus(t, a, http.StatusOK)
	options, err := redis.ParseURL(own.URL())
	kit.Must(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	for _, key := range s.Keys("*") {
		if !strings.HasPrefix(key, "mm:") {
			t.Errorf("%s is in the queues' Redis", key)
		}
	}
	for _, prefix := range []string{"session:{", "session:subject:", "rate:limit:{player:", "open:limit:{streams:"} {
		kit.Eventually(t, prefix+" is in the sessions' Redis", func() bool {
			system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", alice, ""), http.StatusOK) // counts against the limit
			keys, err := client.Keys(t.Context(), prefix+"*").Result()
			kit.Must(t, err)
			return len(keys) > 0
		})
	}
	kit.Must(t, s.Redis.Stop())
	v.Whoami()
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", i.Fresh(t, "bob", nil), ""), http.StatusOK)
	system.WantProblem(t, v.Do(http.MethodGet, "/v1/matchmaking/tickets", ""), http.StatusServiceUnavailable, "unavailable")

	// A new process has connected to neither.
	if err := s.Ready(functions.GatewayName); err != nil {
		t.Errorf("the gateway is not ready without the queues' Redis: %v", err)
	}
	if s.Ready("ticket") == nil {
		t.Error("ticket is ready without the queues' Redis, want not")
	}
	kit.Must(t, own.Stop())
	if s.Ready(functions.GatewayName) == nil {
		t.Error("the gateway is ready without the sessions' Redis, want not")
	}
}
