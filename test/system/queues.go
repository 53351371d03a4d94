package system

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// JoinPath is the path for joining the queue of mode.
func JoinPath(mode string) string { return "/v1/matchmaking/queues/" + mode + "/tickets" }

// TicketPath is the path of a ticket.
func TicketPath(ticketID string) string { return TicketListPath + "/" + ticketID }

// FollowPath is the path of a stream that also follows a ticket.
func FollowPath(ticketID string) string { return StreamPath + "?ticket_id=" + ticketID }

func joinBody(key, attrs string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"attributes":%s}`, key, attrs)
}

// JoinWith requests a place in a queue; attributes are JSON.
func (s *System) JoinWith(token, mode, key, attributes string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, JoinPath(mode), token, joinBody(key, attributes))
}

// Joined is JoinWith that must succeed, and returns the ticket's id.
func (s *System) Joined(token, mode, key, attributes string) (ticketID string) {
	s.T.Helper()
	a := s.JoinWith(token, mode, key, attributes)
	if a.Status != http.StatusCreated {
		s.T.Errorf("joining %s is answered %d %s, want 201", mode, a.Status, a.Body)
	}
	return a.Text("ticket_id")
}

// ReadTicket returns a ticket, which must exist.
func (s *System) ReadTicket(token, ticketID string) map[string]any {
	s.T.Helper()
	a := s.Call(http.MethodGet, TicketPath(ticketID), token, "")
	WantStatus(s.T, a, http.StatusOK)
	return a.JSON(s.T)
}

// CancelTicket requests that a ticket be cancelled.
func (s *System) CancelTicket(token, ticketID string) Answer {
	s.T.Helper()
	return s.Call(http.MethodDelete, TicketPath(ticketID), token, "")
}

// Notifications returns the notifications of an event type in a user's inbox, newest
// first.
func (s *System) Notifications(token, eventType string) (list []map[string]any) {
	s.T.Helper()
	a := s.Call(http.MethodGet, InboxPath, token, "")
	WantStatus(s.T, a, http.StatusOK)
	for _, n := range a.JSON(s.T)["notifications"].([]any) {
		if n := n.(map[string]any); n["event_type"] == eventType {
			list = append(list, n)
		}
	}
	return list
}

// QueueClient returns a client of the Redis that holds the queues; the caller closes it.
func (s *System) QueueClient() *redis.Client {
	s.T.Helper()
	options, err := redis.ParseURL(s.Redis.URL())
	kit.Must(s.T, err)
	return redis.NewClient(options)
}

// Queues lists all keys of matchmaking with the tickets' statuses: a refused request must
// not have added or changed any.
func (s *System) Queues() string {
	s.T.Helper()
	client := s.QueueClient()
	defer client.Close()
	keys, err := client.Keys(s.T.Context(), "mm:*").Result()
	kit.Must(s.T, err)
	for i, key := range keys {
		if strings.HasPrefix(key, "mm:ticket:") {
			keys[i] += "=" + statusOf(client.Get(s.T.Context(), key).Val())
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// statusOf reads a ticket's text, which pkg/matchmaking/queue.lua describes.
func statusOf(text string) string {
	for _, status := range []string{matchmaking.Matched, matchmaking.Cancelled, matchmaking.Expired} {
		if strings.Contains(text, "\x00"+status) {
			return status
		}
	}
	return matchmaking.Queued
}

// Patient returns a player's access token that outlasts a test.
func (i *People) Patient(t testing.TB, user string) string {
	t.Helper()
	return i.Token(t, map[string]any{"sub": user, "exp": time.Now().Add(10 * time.Minute).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
}
