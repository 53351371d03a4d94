package matchmaking_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// queues returns the rules of these tests: the default ones, and a mode in which
// attributes must agree and skill does not count.
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

// setup is a store on a Redis of the test's own.
type setup struct {
	*matchmaking.Store
	client redis.UniversalClient
	t      testing.TB
}

func start(t *testing.T, change ...func(*matchmaking.Rules)) setup {
	t.Helper()
	t.Parallel()
	return startOn(t, clientOf(t, kit.Redis(t).URL()), change...)
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

// try joins with an idempotency key.
func (s setup) try(user, mode, key, text string) (matchmaking.Joined, bool, error) {
	s.t.Helper()
	return s.Join(s.t.Context(), matchmaking.Join{UserID: user, Mode: mode, Key: key, Attributes: attributes(s.t, text)})
}

// join joins with a key derived from the user, so only once for each user and mode.
func (s setup) join(user, mode, text string) string {
	s.t.Helper()
	return s.joinAs(user, mode, "k-"+user, text)
}

func (s setup) joinAs(user, mode, key, text string) string {
	s.t.Helper()
	joined, _, err := s.try(user, mode, key, text)
	if err != nil {
		s.t.Fatalf("%s in %s: %v", user, mode, err)
	}
	return joined.TicketID
}

func (s setup) match(mode string) matchmaking.Pass {
	s.t.Helper()
	pass, err := s.Match(s.t.Context(), mode, matchmaking.MaxPairs)
	kit.Must(s.t, err)
	return pass
}

// matchAll makes passes of at most the given pairs until nothing is left to do.
func (s setup) matchAll(mode string, pairs int) (matches []matchmaking.PassMatch, expired int) {
	s.t.Helper()
	for range 2000 {
		pass, err := s.Match(s.t.Context(), mode, pairs)
		kit.Must(s.t, err)
		matches, expired = append(matches, pass.Matches...), expired+pass.Expired
		if !pass.More {
			return matches, expired
		}
	}
	s.t.Fatalf("%s: passes do not end", mode)
	return nil, 0
}

func (s setup) get(user, ticketID string) matchmaking.Ticket {
	s.t.Helper()
	ticket, err := s.Get(s.t.Context(), user, ticketID)
	if err != nil {
		s.t.Fatalf("%s of %s: %v", ticketID, user, err)
	}
	return ticket
}

func (s setup) cancel(user, ticketID string) {
	s.t.Helper()
	if _, cancelled, err := s.Cancel(s.t.Context(), user, ticketID); err != nil || !cancelled {
		s.t.Fatalf("%s of %s: cancelled %v, %v", ticketID, user, cancelled, err)
	}
}

func attributes(t testing.TB, text string) matchmaking.Attributes {
	t.Helper()
	a, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return a
}

// parse reads attributes from the JSON of a request.
func parse(text string) (matchmaking.Attributes, error) {
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return matchmaking.Attributes{}, err
	}
	return matchmaking.ParseAttributes(raw)
}
