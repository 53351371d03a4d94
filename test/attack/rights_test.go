package attack_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Every function does its work with the rights that it has in Postgres, Redis and NATS.
func TestEveryFunctionHasTheRightsItNeeds(t *testing.T) {
	t.Parallel()
	s, people := system.StartApart(t, system.RareLooks)
	alice, bob := people.Patient(t, "alice"), people.Patient(t, "bob")
	user := s.UserID(alice)

	following := s.Follow(alice)
	// A nudge is dropped while deliver connects, so grants are repeated until one
	// arrives, long before the stream looks by itself.
	grants, granted := 0, time.Time{}
	kit.Within(t, system.NudgedIn, "the stream was nudged", func() bool {
		if time.Since(granted) > 300*time.Millisecond {
			grants, granted = grants+1, time.Now()
			system.WantStatus(t, s.Grant(fmt.Sprint("k1-", grants), user, "item1"), http.StatusOK)
		}
		return len(following.Got()) > 0
	})
	system.WantStatus(t, s.Revoke("k2", user, "item1"), http.StatusOK)
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/me/overview", alice, ""), http.StatusOK)

	ticket := s.Joined(alice, "casual", "k1", `{}`)
	ticketStream := s.FollowAt(system.FollowPath(ticket), alice)
	cancelled := s.Joined(bob, "rank", "k1", `{"skill":1}`)
	if a := s.CancelTicket(bob, cancelled); a.Status >= http.StatusBadRequest {
		t.Errorf("cancelling answered %d %s", a.Status, a.Body)
	}
	other := s.Joined(bob, "casual", "k2", `{}`)
	kit.Eventually(t, "both are matched, with a session", func() bool {
		return s.ReadTicket(alice, ticket)["session"] != nil && s.ReadTicket(bob, other)["session"] != nil
	})
	kit.Eventually(t, "both are notified", func() bool {
		return len(s.Notifications(alice, "MatchMade")) == 1 && len(s.Notifications(bob, "MatchMade")) == 1
	})
	kit.Eventually(t, "the ticket's stream delivers the match", func() bool { return len(ticketStream.Got()) > 0 })

	system.MoneyMoves(t, s, people)

	if a := s.Call(http.MethodGet, "/login", "", ""); a.Status >= http.StatusInternalServerError {
		t.Errorf("/login answered %d %s", a.Status, a.Body)
	}
	for _, f := range functions.All {
		if f.Schedule > 0 {
			s.Tick(f.Name)
		}
	}
	for _, says := range []string{"permission", "Permission", "NOPERM", "not authorized"} {
		for line := range strings.Lines(s.Log.String()) {
			if strings.Contains(line, says) {
				t.Errorf("a right is missing: %s", line)
			}
		}
	}
}

// A function that was taken over reaches no other function's keys, and publishes only its
// own events.
func TestUsersKeepToTheirOwn(t *testing.T) {
	t.Parallel()
	s, _ := system.Stores(t, kit.Listen(t))
	for name, rights := range functions.Users() {
		options, err := redis.ParseURL(s.Redis.URLAs(name))
		kit.Must(t, err)
		client := redis.NewClient(options)
		for _, family := range []string{"session:*", "rate:*", "limit:*", "mm:*", "other:*"} {
			err := client.Set(t.Context(), strings.Replace(family, "*", name, 1), 1, time.Minute).Err()
			if may := slices.Contains(rights.Keys, family); may != (err == nil) {
				t.Errorf("redis: %s writes %s: %v; allowed: %t", name, family, err, may)
			}
		}
		if err := client.FlushAll(t.Context()).Err(); err == nil {
			t.Errorf("redis: %s may flush everything", name)
		}
		_ = client.Close()

		refused := make(chan error, 1)
		conn, err := nats.Connect(s.NATS.URLAs(name), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		kit.Must(t, err)
		for _, subject := range append(slices.Clone(event.Subjects), "live.u_1", "$JS.API.STREAM.PURGE.ENTITLEMENT_EVENTS", "$JS.API.CONSUMER.DELETE.ENTITLEMENT_EVENTS.notify") {
			if slices.Contains(rights.Publishes, subject) || subject == "live.u_1" && len(rights.Sends) > 0 {
				continue
			}
			kit.Must(t, conn.Publish(subject, nil))
			select {
			case err := <-refused:
				if !strings.Contains(err.Error(), subject) {
					t.Errorf("nats: %s published to %s, and got another error: %v", name, subject, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("nats: %s may publish to %s", name, subject)
			}
		}
		conn.Close()
	}
}
