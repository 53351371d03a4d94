package functions_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const (
	ticketListPath = "/v1/matchmaking/tickets"
	queuePatience  = 20 * time.Second
)

func joinPath(mode string) string { return "/v1/matchmaking/queues/" + mode + "/tickets" }

func ticketPath(ticketID string) string { return ticketListPath + "/" + ticketID }

func followPath(ticketID string) string { return streamPath + "?ticket_id=" + ticketID }

func joinBody(key, attrs string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"attributes":%s}`, key, attrs)
}

func sortedNames(m map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

// joinWith asks for a place in a queue; attributes are JSON.
func (s *system) joinWith(token, mode, key, attributes string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, joinPath(mode), token, joinBody(key, attributes))
}

// joined is joinWith, which must succeed, and the ticket's id.
func (s *system) joined(token, mode, key, attributes string) (ticketID string) {
	s.t.Helper()
	a := s.joinWith(token, mode, key, attributes)
	wantStatus(s.t, a, http.StatusCreated)
	ticketID, _ = a.json(s.t)["ticket_id"].(string)
	return ticketID
}

func (s *system) readTicket(token, ticketID string) map[string]any {
	s.t.Helper()
	a := s.call(http.MethodGet, ticketPath(ticketID), token, "")
	wantStatus(s.t, a, http.StatusOK)
	return a.json(s.t)
}

func (s *system) cancelTicket(token, ticketID string) answer {
	s.t.Helper()
	return s.call(http.MethodDelete, ticketPath(ticketID), token, "")
}

// matchAll makes all matches that can be made, and tells them.
func (s *system) matchAll() {
	s.t.Helper()
	for _, function := range []string{"match", "announce", "notify", "deliver"} {
		s.tick(function)
	}
}

// moment reads a time of an answer; it may end in zeros or not.
func moment(t testing.TB, text any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(text))
	must(t, err)
	return at
}

// reason is why a ticket is not matched yet.
func reason(ticket map[string]any) any {
	r, _ := ticket["reason"].(map[string]any)
	return r["code"]
}

// notifications are what a user's inbox has of an event type, newest first.
func (s *system) notifications(token, eventType string) (list []map[string]any) {
	s.t.Helper()
	a := s.call(http.MethodGet, inboxPath, token, "")
	wantStatus(s.t, a, http.StatusOK)
	for _, n := range a.json(s.t)["notifications"].([]any) {
		if n := n.(map[string]any); n["event_type"] == eventType {
			list = append(list, n)
		}
	}
	return list
}

// queueClient is a client of the Redis that has the queues; the caller closes it.
func (s *system) queueClient() *redis.Client {
	s.t.Helper()
	options, err := redis.ParseURL(s.redis.URL())
	must(s.t, err)
	return redis.NewClient(options)
}

// store is the one that the functions use, past them.
func (s *system) store(client redis.UniversalClient) *matchmaking.Store {
	s.t.Helper()
	set := s.runtime.Settings
	modes, err := matchmaking.NewModes(set.MatchmakingModes, set.MatchmakingRanked, set.MatchmakingAgree)
	must(s.t, err)
	return matchmaking.NewStore(client, matchmaking.Rules{
		Modes: modes, TTL: set.MatchmakingTTL, Windows: set.MatchmakingWindows, WidenEvery: set.MatchmakingWiden, QueueLimit: set.MatchmakingQueue,
	})
}

// queues lists every key of matchmaking, and the statuses of tickets: what was
// refused must not have left or changed anything.
func (s *system) queues() string {
	s.t.Helper()
	client := s.queueClient()
	defer client.Close()
	keys, err := client.Keys(s.t.Context(), "mm:*").Result()
	must(s.t, err)
	for i, key := range keys {
		if strings.HasPrefix(key, "mm:ticket:") {
			keys[i] += "=" + client.HGet(s.t.Context(), key, "status").Val()
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// patient is a player whose token lasts as long as a test.
func (i *signedIssuer) patient(t testing.TB, user string) string {
	t.Helper()
	return i.token(t, map[string]any{"sub": user, "exp": time.Now().Add(10 * time.Minute).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
}
