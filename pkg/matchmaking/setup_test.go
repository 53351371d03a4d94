package matchmaking_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// queues are the rules of these tests: the default ones, and a mode where
// attributes agree and skill does not count.
func queues() matchmaking.Rules {
	return matchmaking.Rules{
		Modes: []matchmaking.Mode{
			{Name: "casual"},
			{Name: "rank", Ranked: true, Agree: []string{"region"}},
			{Name: "regional", Agree: []string{"region", "language"}},
		},
		TTL: 2 * time.Minute, Windows: []int{100, 200, 400}, WidenEvery: 5 * time.Second, QueueLimit: 200_000,
	}
}

type setup struct {
	*matchmaking.Store
	client redis.UniversalClient
	t      testing.TB
}

func start(t *testing.T, change ...func(*matchmaking.Rules)) setup {
	t.Helper()
	t.Parallel()
	return startOn(t, clientOf(t, testkit.Redis(t).URL()), change...)
}

func clientOf(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func startOn(t testing.TB, client redis.UniversalClient, change ...func(*matchmaking.Rules)) setup {
	t.Helper()
	rules := queues()
	for _, c := range change {
		c(&rules)
	}
	if err := rules.Check(); err != nil {
		t.Fatal(err)
	}
	return setup{matchmaking.NewStore(client, rules), client, t}
}

func attributes(t testing.TB, text string) matchmaking.Attributes {
	t.Helper()
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatal(err)
	}
	a, err := matchmaking.ParseAttributes(raw)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s setup) join(user, mode, text string) string {
	s.t.Helper()
	joined, _, err := s.Join(s.t.Context(), matchmaking.Join{UserID: user, Mode: mode, Key: "k-" + user, Attributes: attributes(s.t, text)})
	if err != nil {
		s.t.Fatal(err)
	}
	return joined.TicketID
}

func (s setup) match(mode string) matchmaking.Pass {
	s.t.Helper()
	pass, err := s.Match(s.t.Context(), mode, matchmaking.MaxPairs)
	if err != nil {
		s.t.Fatal(err)
	}
	return pass
}

func (s setup) get(user, ticketID string) matchmaking.Ticket {
	s.t.Helper()
	ticket, err := s.Get(s.t.Context(), user, ticketID)
	if err != nil {
		s.t.Fatal(err)
	}
	return ticket
}

func (s setup) join2(user, mode, key, text string) string {
	s.t.Helper()
	joined, _, err := s.Join(s.t.Context(), matchmaking.Join{UserID: user, Mode: mode, Key: key, Attributes: attributes(s.t, text)})
	if err != nil {
		s.t.Fatal(err)
	}
	return joined.TicketID
}

// dump is everything in Redis.
func (s setup) dump() string {
	s.t.Helper()
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(keys)
	var all strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&all, "%s %q\n", key, s.client.Dump(s.t.Context(), key).Val())
	}
	return all.String()
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20s", what)
		}
	}
}
