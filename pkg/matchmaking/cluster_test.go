package matchmaking_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

func startCluster(t *testing.T, change ...func(*matchmaking.Rules)) setup {
	t.Helper()
	t.Parallel()
	options, err := redis.ParseURL(kit.RedisCluster(t))
	kit.Must(t, err)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}, Password: options.Password, MaxRedirects: 3})
	t.Cleanup(func() { _ = client.Close() })
	return startOn(t, client, change...)
}

// On a Redis Cluster the keys of every command are in one slot: the whole life of tickets,
// matches and events works in every mode, and the modes are on several nodes.
func TestOnACluster(t *testing.T) {
	s := startCluster(t, func(r *matchmaking.Rules) {
		r.Modes = append(r.Modes, matchmaking.Mode{Name: "arena"}, matchmaking.Mode{Name: "duel", Ranked: true, Agree: []string{"region", "language", "pad"}})
	})
	f := announcingOn(s)
	slots := map[int64]bool{}
	a, arrived := f.worker("a"), &arrivals{has: map[string]bool{}}
	confirm := f.confirmer(arrived, 0)
	for _, mode := range s.Modes() {
		slot, err := s.client.ClusterKeySlot(t.Context(), "mm:queue:{"+mode+"}").Result()
		kit.Must(t, err)
		slots[slot/(16384/3)] = true

		// A region with braces must not make another tag.
		text := `{"skill":1,"region":"{a}","language":"}{"}`
		id := s.join("u_a", mode, text)
		if joined, replayed, err := s.try("u_a", mode, "k-u_a", text); err != nil || !replayed || joined.TicketID != id {
			t.Errorf("%s: the same join answered %+v, replayed %v, %v; want ticket %s", mode, joined, replayed, err, id)
		}
		if _, _, err := s.try("u_a", mode, "k-u_a", `{"skill":2}`); !errors.Is(err, idempotency.ErrReused) {
			t.Errorf("%s: another body with the same key: %v, want ErrReused", mode, err)
		}
		if pass := s.match(mode); len(pass.Matches) != 0 || s.get("u_a", id).Reason.Code != "alone" {
			t.Errorf("%s: a pass with one ticket did %+v, want no match and the reason alone", mode, pass)
		}
		s.cancel("u_a", id)
		games := append(f.playMany(mode, 3), f.play(mode))
		if report := f.step(a); report != (lease.Report{Claimed: 4, Done: 4}) {
			t.Errorf("%s: the step reported %+v, want Claimed: 4, Done: 4", mode, report)
		}
		for _, g := range games[1:] {
			if f.isAnnounced(g) == nil {
				t.Errorf("%s: no session", mode)
			}
			arrived.has[g.event] = true
		}
		if report := confirm(); report.Done != 3 || report.Retried != 1 || len(f.entries(mode)) != 1 {
			t.Errorf("%s: the confirmer reported %+v, want 3 done and 1 retried; entries %v, want 1", mode, report, f.entries(mode))
		}
		f.step(a)
		if n := len(f.messages(games[0].id)); n != 2 {
			t.Errorf("%s: the lost match is in the stream %d times, want 2", mode, n)
		}
		arrived.has[games[0].event] = true
		if report := confirm(); report.Done != 1 || len(f.entries(mode)) != 0 {
			t.Errorf("%s: the confirmer reported %+v, want 1 done; entries %v, want none", mode, report, f.entries(mode))
		}
	}
	if len(slots) < 2 {
		t.Error("all modes are on one node")
	}
	list, err := s.Latest(t.Context(), "u_a")
	if err != nil || len(list) != len(s.Modes()) {
		t.Errorf("the latest tickets are %+v, %v; want one in each mode", list, err)
	}
	if changed, err := s.Changed(t.Context(), list); err != nil || slices.Contains(changed, true) || len(changed) != len(list) {
		t.Errorf("of %d tickets in as many slots %v have changed, %v, want none", len(list), changed, err)
	}
}

func TestRacesOnAClusterEndWell(t *testing.T) {
	s := startCluster(t)
	j := race(s, 2000)
	for _, w := range append(j.wrong, disagreements(s, j.records, j.passes)...) {
		t.Error(w)
	}
}

// Windows widen and tickets expire on a Redis Cluster, too.
func TestTimeOnACluster(t *testing.T) {
	s := startCluster(t, func(r *matchmaking.Rules) {
		r.TTL, r.WidenEvery, r.Windows = 2*time.Second, 200*time.Millisecond, []int{1, 10}
	})
	a, b := s.join("u_a", "rank", `{"skill":1}`), s.join("u_b", "rank", `{"skill":11}`)
	over := map[string]string{}
	for _, mode := range s.Modes() {
		user := fmt.Sprint("u_", mode)
		over[user] = s.join(user, mode, `{"skill":5000}`)
	}
	kit.Eventually(t, "the window widens", func() bool { return len(s.match("rank").Matches) == 1 })
	if one, two := s.get("u_a", a), s.get("u_b", b); one.MatchID == "" || one.MatchID != two.MatchID {
		t.Errorf("the tickets have %+v and %+v, want one match", one.Made, two.Made)
	}
	for user, id := range over {
		kit.Eventually(t, "it expires", func() bool { return s.get(user, id).Status == matchmaking.Expired })
		if mode := s.get(user, id).Mode; s.match(mode).Expired != 1 {
			t.Errorf("%s: nothing was swept", mode)
		}
	}
}
