package matchmaking_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Rules may change while players wait. Older tickets can still be read and cancelled, they
// expire, they are matched once at most, and nothing is left of them.
func TestRulesChangeWhilePlayersWait(t *testing.T) {
	type rules = matchmaking.Rules
	plain := func(r *rules) { r.Modes = []matchmaking.Mode{{Name: "m"}} }
	ranked := func(windows ...int) func(r *rules) {
		return func(r *rules) { r.Modes, r.Windows = []matchmaking.Mode{{Name: "m", Ranked: true}}, windows }
	}
	agree := func(names ...string) func(r *rules) {
		return func(r *rules) { r.Modes = []matchmaking.Mode{{Name: "m", Agree: names}} }
	}
	both := func(r *rules) {
		r.Modes = []matchmaking.Mode{{Name: "m", Ranked: true, Agree: []string{"region", "language"}}}
	}
	sets := []struct {
		name string
		set  func(*rules)
	}{
		{"plain", plain},
		{"three windows", ranked(10, 20, 40)},
		{"one window", ranked(10)},
		{"eight windows", ranked(1, 2, 3, 4, 5, 6, 7, 8)},
		{"region", agree("region")},
		{"language, region", agree("language", "region")},
		{"all", both},
	}
	s := start(t, plain)
	for _, from := range sets {
		for _, to := range sets {
			kit.Must(t, s.client.FlushAll(t.Context()).Err())
			before, after := startOn(t, s.client, from.set), startOn(t, s.client, to.set)
			c := before.clock()
			after.clock()
			name := from.name + " -> " + to.name
			attributes := func(i int) string {
				return fmt.Sprintf(`{"skill":%d,"region":"r%d","language":"l%d"}`, 1000*i, i, i)
			}
			tickets := map[string]string{}
			for i := range 4 {
				user := fmt.Sprint("u_", i)
				tickets[user] = before.join(user, "m", attributes(i))
			}
			for range 9 {
				if from.name != "plain" { // there all would be matched
					before.matchAll("m", 10)
				}
				c.pass(5 * time.Second) // to the widest window
			}
			for user, id := range tickets {
				if got, err := after.Get(t.Context(), user, id); err != nil || got.Status != matchmaking.Queued {
					t.Errorf("%s: %s reads %+v %v", name, user, got, err)
				}
			}
			for i := range 3 {
				user := fmt.Sprint("u_new", i)
				tickets[user] = after.join(user, "m", attributes(i))
			}
			for user, id := range tickets {
				if _, err := after.Get(t.Context(), user, id); err != nil {
					t.Errorf("%s: after new tickets joined %s reads %v", name, user, err)
				}
			}
			if _, _, err := after.Cancel(t.Context(), "u_3", tickets["u_3"]); err != nil {
				t.Errorf("%s: cancelling u_3: %v", name, err)
			}
			after.matchAll("m", 10)
			c.pass(5 * time.Minute)
			after.matchAll("m", 10)
			after.matchAll("m", 10)
			for _, w := range disagreements(after, recordsOf(after, tickets), nil) {
				t.Errorf("%s: %s", name, w)
			}
			if n := s.client.ZCard(t.Context(), "mm:queue:{m}").Val(); n != 0 {
				t.Errorf("%s: %d tickets wait for ever", name, n)
			}
			after.noLeftovers("due", "pool")
		}
	}
}

// recordsOf returns records of the tickets, with nothing known but how they ended.
func recordsOf(s setup, tickets map[string]string) []*record {
	var records []*record
	for user, id := range tickets {
		mode, _, _ := strings.Cut(id, "_")
		r := &record{user: user, mode: mode, joined: matchmaking.Joined{TicketID: id}}
		if s.get(user, id).Status == matchmaking.Cancelled {
			r.cancels = 1
		}
		records = append(records, r)
	}
	return records
}

// A pool lives as long as any ticket in it waits, even if another one joins it that waits
// for a shorter time.
func TestShorterWaitKeepsThePool(t *testing.T) {
	s := start(t, func(r *matchmaking.Rules) { r.TTL = time.Hour })
	s.join("u_a", "rank", `{"skill":1}`)
	shorter := startOn(t, s.client, func(r *matchmaking.Rules) { r.TTL = time.Second })
	shorter.join("u_b", "rank", `{"skill":5000}`)
	for _, pool := range s.client.Keys(t.Context(), "mm:pool:*").Val() {
		if ttl := s.client.PTTL(t.Context(), pool).Val(); ttl < 59*time.Minute {
			t.Errorf("%s ends after %s, but u_a waits for an hour", pool, ttl)
		}
	}
}

// The tickets of a mode that is no longer configured are not found until the mode is
// configured again.
func TestModeThatIsTakenAway(t *testing.T) {
	s := start(t)
	a := s.join("u_a", "rank", `{"skill":1}`)
	less := startOn(t, s.client, func(r *matchmaking.Rules) { r.Modes = []matchmaking.Mode{{Name: "casual"}} })
	if _, err := less.Get(t.Context(), "u_a", a); !errors.Is(err, matchmaking.ErrNotFound) {
		t.Errorf("without the mode Get returned %v, want ErrNotFound", err)
	}
	if list, err := less.Latest(t.Context(), "u_a"); err != nil || len(list) != 0 {
		t.Errorf("without the mode Latest returned %+v, %v, want nothing", list, err)
	}
	if got := s.get("u_a", a); got.Status != matchmaking.Queued {
		t.Errorf("with the mode the ticket is %+v, want it QUEUED", got)
	}
}
