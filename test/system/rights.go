package system

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/test/kit"
)

// StartApart starts a system in which each function has its own connections, with only
// its own rights, as in a process of its own.
func StartApart(t *testing.T, environment ...string) (*System, *People) {
	t.Helper()
	people, listener := NewPeople(t), kit.Listen(t)
	s, values := Stores(t, listener, append([]string{"OIDC_ISSUER=" + people.URL, "POSTGRES_POOL_SIZE=2"}, environment...)...)
	local, runtimes := transport.Local{}, []*fn.Runtime{}
	for _, f := range functions.All {
		own := maps.Clone(values)
		for _, role := range migrations.Roles {
			if !slices.Contains(f.Domains, role.Name) {
				delete(own, strings.ToUpper(role.Name)+"_DATABASE_URL")
			}
		}
		own["REDIS_URL"], own["NATS_URL"] = s.Redis.URLAs(f.Name), s.NATS.URLAs(f.Name)
		loaded, err := settings.LoadFrom(own)
		kit.Must(t, err)
		rt := fn.NewRuntime(loaded, telemetry.NewLogger(s.Log, loaded.LogLevel), functions.All)
		rt.Invoke = local
		kit.Must(t, rt.Host(f))
		local[f.Name] = rt.Here[f.Name]
		if f.Name == functions.GatewayName {
			s.Runtime = rt
		}
		runtimes = append(runtimes, rt)
		kit.Within(t, 10*time.Second, f.Name+" is ready", func() bool { return rt.Ready(t.Context()) == nil })
	}
	s.serveOn(listener, local[functions.GatewayName], runtimes...)
	s.Writer = people.Token(t, nil)
	return s, people
}
