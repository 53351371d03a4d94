package functions_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Sessions, limits and open streams may have a Redis of their own: neither do queues
// that fill theirs sign anybody out, nor is one ready without the other.
func TestSessionsInARedisOfTheirOwn(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	own := kit.StartRedis(t, t.TempDir())
	s := startAt(t, i, "SESSION_REDIS_URL="+own.URL())
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice"})
	v.queueUp("casual", "{}")
	alice := i.fresh(t, "alice", nil)
	a, _ := s.openStream(alice)
	wantStatus(t, a, http.StatusOK)
	options, err := redis.ParseURL(own.URL())
	must(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	for _, key := range s.keys("*") {
		if !strings.HasPrefix(key, "mm:") {
			t.Errorf("%s is in the queues' Redis", key)
		}
	}
	for _, prefix := range []string{"session:{", "session:subject:", "rate:limit:{player:", "open:limit:{streams:"} {
		eventually(t, 10*time.Second, prefix+" is in the sessions' Redis", func() bool {
			wantStatus(t, s.call(http.MethodGet, "/v1/me", alice, ""), http.StatusOK) // is counted
			keys, err := client.Keys(t.Context(), prefix+"*").Result()
			must(t, err)
			return len(keys) > 0
		})
	}
	must(t, s.redis.Stop())
	v.whoami()
	wantStatus(t, s.call(http.MethodGet, "/v1/me", i.fresh(t, "bob", nil), ""), http.StatusOK)
	wantProblem(t, v.do(http.MethodGet, "/v1/matchmaking/tickets", ""), http.StatusServiceUnavailable, "unavailable")

	// A process that was just started knows neither.
	gateway, err := functions.Named(functions.GatewayName)
	must(t, err)
	tickets, err := functions.Named("ticket")
	must(t, err)
	ready := func(f fn.Function) error {
		runtime := fn.NewRuntime(s.runtime.Settings, telemetry.NewLogger(s.log, "debug"), functions.All)
		defer runtime.Close()
		runtime.Invoke = runtime.Here
		must(t, runtime.Host(f))
		return runtime.Ready(t.Context())
	}
	if err := ready(gateway); err != nil {
		t.Errorf("the gateway is not ready without the queues' Redis: %v", err)
	}
	if ready(tickets) == nil {
		t.Error("ticket is ready without the queues' Redis, want not")
	}
	must(t, own.Stop())
	if ready(gateway) == nil {
		t.Error("the gateway is ready without the sessions' Redis, want not")
	}
}
