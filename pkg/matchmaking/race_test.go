package matchmaking_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/testkit"
)

// operations of the race: MATCHMAKING_RACE=100000 is the full one.
func operations(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv("MATCHMAKING_RACE")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// record is what a client was answered about a ticket of theirs.
type record struct {
	user, ticket string
	cancelled    bool // by an answer of this client's
}

// race runs clients who join, read, cancel and join again, beside matchers, and
// returns what the clients were answered.
func race(s setup, total int) []record {
	const clients, matchers = 32, 3
	modes := []string{"casual", "rank", "regional"}
	var mutex sync.Mutex
	var records []record
	stop := make(chan struct{})
	var passes, playing sync.WaitGroup
	for m := range matchers {
		passes.Go(func() {
			random := rand.New(rand.NewPCG(uint64(m), 7))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Match(s.t.Context(), modes[random.IntN(len(modes))], 1+random.IntN(matchmaking.MaxPairs)); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	for c := range clients {
		playing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			var own []record
			for n := 0; n < total/clients; n++ {
				user, mode := fmt.Sprintf("u_%d_%d", c, random.IntN(40)), modes[random.IntN(len(modes))]
				attributes := attributes(s.t, fmt.Sprintf(`{"skill":%d,"region":"r%d","language":"l%d"}`, random.IntN(600), random.IntN(2), random.IntN(2)))
				joined, _, err := s.Join(s.t.Context(), matchmaking.Join{UserID: user, Mode: mode, Key: fmt.Sprint(n), Attributes: attributes})
				if err != nil {
					if fault.Of(err) != fault.Conflict {
						s.t.Error(err)
						return
					}
					continue // they wait already
				}
				r := record{user: user, ticket: joined.TicketID}
				if random.IntN(3) == 0 {
					_, r.cancelled, err = s.Cancel(s.t.Context(), user, r.ticket)
					if err != nil && !errors.Is(err, matchmaking.ErrMatched) {
						s.t.Error(err)
						return
					}
					n++
				}
				own = append(own, r)
			}
			mutex.Lock()
			defer mutex.Unlock()
			records = append(records, own...)
		})
	}
	playing.Wait()
	close(stop)
	passes.Wait()
	return records
}

// disagreements are what is wrong between what clients were answered, what their
// tickets say, and the matches that are told.
func disagreements(s setup, records []record) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	told := map[string]string{} // ticket -> match
	for _, mode := range s.Modes() {
		entries, err := s.client.XRange(s.t.Context(), "mm:events:{"+mode+"}", "-", "+").Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, entry := range entries {
			for match, value := range entry.Values {
				lines := strings.Split(value.(string), "\n")
				for _, ticket := range []string{lines[3], lines[5]} {
					if other := told[ticket]; other != "" {
						say("%s is told in %s and in %s", ticket, other, match)
					}
					told[ticket] = match
				}
			}
		}
	}
	byMatch := map[string][]matchmaking.Ticket{}
	users := map[string]string{}
	for _, r := range records {
		ticket, err := s.Get(s.t.Context(), r.user, r.ticket)
		if err != nil {
			say("%s: %v", r.ticket, err)
			continue
		}
		users[ticket.ID] = r.user
		if r.cancelled && ticket.Status != matchmaking.Cancelled {
			say("%s was cancelled and is %s", ticket.ID, ticket.Status)
		}
		if ticket.Status == matchmaking.Matched && ticket.Made == nil {
			say("%s is MATCHED and waits", ticket.ID)
			continue
		}
		if ticket.Status == matchmaking.Matched {
			byMatch[ticket.MatchID] = append(byMatch[ticket.MatchID], ticket)
		}
		if match := told[ticket.ID]; (match != "") != (ticket.Status == matchmaking.Matched) || match != "" && ticket.Made != nil && match != ticket.MatchID {
			say("%s is %s, and told in %q", ticket.ID, ticket.Status, match)
		}
	}
	for match, tickets := range byMatch {
		if len(tickets) != 2 {
			say("%s has %d tickets", match, len(tickets))
			continue
		}
		a, b := tickets[0], tickets[1]
		if a.PeerUserIDs[0] != users[b.ID] || b.PeerUserIDs[0] != users[a.ID] || users[a.ID] == users[b.ID] || a.Mode != b.Mode {
			say("%s: %s has %v and %s has %v", match, users[a.ID], a.PeerUserIDs, users[b.ID], b.PeerUserIDs)
		}
	}
	return wrong
}

// Whatever joins, cancels and matches meet: each ticket is in at most one match, and
// none in one that was cancelled.
func TestRacesEndWell(t *testing.T) {
	s := start(t)
	records := race(s, operations(t, 20_000))
	wrong := disagreements(s, records)
	for _, w := range wrong[:min(len(wrong), 10)] {
		t.Error(w)
	}
	counts := map[string]int{}
	for _, r := range records {
		counts[s.get(r.user, r.ticket).Status]++
	}
	t.Logf("%d tickets: %v", len(records), counts)
	if counts[matchmaking.Matched] == 0 || counts[matchmaking.Cancelled] == 0 {
		t.Error("nothing met")
	}
	noLeftovers(s, "mm:pool:")
}

// The same, on a script that does not look at the status: the race must show it.
func TestRaceShowsAScriptThatDoesNotCheck(t *testing.T) {
	t.Parallel()
	planted := strings.Replace(matchmaking.QueueSource(), `f[1] == 'QUEUED' and t.expires > now`, `t.expires > now`, 1)
	planted = strings.Replace(planted, `redis.call('ZREM', queue, unpack(ids))`, ``, 1)
	s := startOn(t, clientOf(t, testkit.Redis(t).URL()))
	matchmaking.PlantQueueSource(s.Store, planted)
	if wrong := disagreements(s, race(s, 2000)); len(wrong) == 0 {
		t.Error("a script that does not check was not noticed")
	}
}

// noLeftovers fails the test unless exactly those who wait are in queue, due and
// the other kinds of keys that begin so, usually pools.
func noLeftovers(s setup, kinds ...string) {
	s.t.Helper()
	for _, mode := range s.Modes() {
		waiting := map[string]bool{}
		ids, err := s.client.ZRange(s.t.Context(), "mm:queue:{"+mode+"}", 0, -1).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, id := range ids {
			waiting[id] = true
			if status := s.client.HGet(s.t.Context(), "mm:ticket:{"+mode+"}:"+id, "status").Val(); status != matchmaking.Queued {
				s.t.Errorf("%s is in the queue, and %q", id, status)
			}
		}
		keys, err := s.client.Keys(s.t.Context(), "mm:*{"+mode+"}*").Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, key := range keys {
			if !slices.ContainsFunc(append(kinds, "mm:due:"), func(kind string) bool { return strings.HasPrefix(key, kind) }) {
				continue
			}
			members, err := s.client.ZRange(s.t.Context(), key, 0, -1).Result()
			if err != nil {
				s.t.Fatal(err)
			}
			for _, id := range members {
				if !waiting[id] {
					s.t.Errorf("%s is left in %s", id, key)
				}
			}
		}
	}
}

// Everything runs on a Redis Cluster: the keys of a script are in one slot.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(testkit.RedisCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}, Password: options.Password})
	t.Cleanup(func() { _ = client.Close() })
	s := startOn(t, client)
	records := race(s, 2000)
	for _, w := range disagreements(s, records) {
		t.Error(w)
	}
	if list, err := s.Latest(t.Context(), records[0].user); err != nil || len(list) == 0 {
		t.Errorf("%v, %v", list, err)
	}
}
