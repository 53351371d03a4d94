package functions_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/test/kit"
)

// apart is a system in which each function has connections of its own, with its own
// rights and no others, as where it is a process of its own.
func apart(t *testing.T) (*system, *signedIssuer) {
	t.Helper()
	people, listener := newSignedIssuer(t), kit.Listen(t)
	s, values := stores(t, listener, "OIDC_ISSUER="+people.url, "POSTGRES_POOL_SIZE=2")
	local, runtimes := transport.Local{}, []*fn.Runtime{}
	for _, f := range functions.All {
		own := maps.Clone(values)
		for _, role := range migrations.Roles {
			if !slices.Contains(f.Domains, role.Name) {
				delete(own, strings.ToUpper(role.Name)+"_DATABASE_URL")
			}
		}
		own["REDIS_URL"], own["NATS_URL"] = s.redis.URLAs(f.Name), s.nats.URLAs(f.Name)
		loaded, err := settings.LoadFrom(own)
		must(t, err)
		rt := fn.NewRuntime(loaded, telemetry.NewLogger(s.log, loaded.LogLevel), functions.All)
		rt.Invoke = local
		must(t, rt.Host(f))
		local[f.Name] = rt.Here[f.Name]
		if f.Name == functions.GatewayName {
			s.runtime = rt
		}
		runtimes = append(runtimes, rt)
		eventually(t, 10*time.Second, f.Name+" is ready", func() bool { return rt.Ready(t.Context()) == nil })
	}
	s.serveOn(listener, local[functions.GatewayName], runtimes...)
	s.writer = people.token(t, nil)
	return s, people
}

// Every function does its work with the rights that it has in Postgres, Redis and NATS.
func TestEveryFunctionHasTheRightsItNeeds(t *testing.T) {
	t.Parallel()
	s, people := apart(t)
	alice, bob := people.patient(t, "alice"), people.patient(t, "bob")
	user := s.userID(alice)

	following := s.follow(alice)
	wantStatus(t, s.grant("k1", user, "item1"), http.StatusOK)
	eventually(t, lookEvery-2*time.Second, "the stream was nudged", func() bool { return len(following.got()) > 0 })
	wantStatus(t, s.revoke("k2", user, "item1"), http.StatusOK)
	wantStatus(t, s.call(http.MethodGet, "/v1/me/overview", alice, ""), http.StatusOK)

	ticket := s.joined(alice, "casual", "k1", `{}`)
	ticketStream := s.followAt(followPath(ticket), alice)
	cancelled := s.joined(bob, "rank", "k1", `{"skill":1}`)
	if a := s.cancelTicket(bob, cancelled); a.status >= http.StatusBadRequest {
		t.Errorf("cancel: %d %s", a.status, a.body)
	}
	other := s.joined(bob, "casual", "k2", `{}`)
	eventually(t, queuePatience, "both are matched, with a session", func() bool {
		return s.readTicket(alice, ticket)["session"] != nil && s.readTicket(bob, other)["session"] != nil
	})
	eventually(t, queuePatience, "both are told", func() bool {
		return len(s.notifications(alice, "MatchMade")) == 1 && len(s.notifications(bob, "MatchMade")) == 1
	})
	eventually(t, queuePatience, "its stream tells the match", func() bool { return len(ticketStream.got()) > 0 })

	moneyMoves(t, s, people)

	if a := s.call(http.MethodGet, "/login", "", ""); a.status >= http.StatusInternalServerError {
		t.Errorf("/login: %d %s", a.status, a.body)
	}
	for _, f := range functions.All {
		if f.Schedule > 0 {
			s.tick(f.Name)
		}
	}
	for _, says := range []string{"permission", "Permission", "NOPERM", "not authorized"} {
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, says) {
				t.Errorf("a right is missing: %s", line)
			}
		}
	}
}

// A function that is taken over reaches no other's keys, and publishes no events that
// are not its business.
func TestUsersKeepToTheirOwn(t *testing.T) {
	t.Parallel()
	s, _ := stores(t, kit.Listen(t))
	for name, rights := range functions.Users() {
		options, err := redis.ParseURL(s.redis.URLAs(name))
		must(t, err)
		client := redis.NewClient(options)
		for _, family := range []string{"session:*", "rate:*", "limit:*", "mm:*", "other:*"} {
			err := client.Set(t.Context(), strings.Replace(family, "*", name, 1), 1, time.Minute).Err()
			if may := slices.Contains(rights.Keys, family); may != (err == nil) {
				t.Errorf("redis: %s writes %s: %v", name, family, err)
			}
		}
		if err := client.FlushAll(t.Context()).Err(); err == nil {
			t.Errorf("redis: %s may delete everything", name)
		}
		_ = client.Close()

		refused := make(chan error, 1)
		conn, err := nats.Connect(s.nats.URLAs(name), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		must(t, err)
		for _, subject := range append(slices.Clone(event.Subjects), "live.u_1", "$JS.API.STREAM.PURGE.ENTITLEMENT_EVENTS", "$JS.API.CONSUMER.DELETE.ENTITLEMENT_EVENTS.notify") {
			if slices.Contains(rights.Publishes, subject) || subject == "live.u_1" && len(rights.Sends) > 0 {
				continue
			}
			must(t, conn.Publish(subject, nil))
			select {
			case err := <-refused:
				if !strings.Contains(err.Error(), subject) {
					t.Errorf("nats: %s publishes to %s: %v", name, subject, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("nats: %s may publish to %s", name, subject)
			}
		}
		conn.Close()
	}
}
