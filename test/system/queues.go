package system

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/test/kit"
)

// JoinPath is where one joins the queue of mode.
func JoinPath(mode string) string { return "/v1/matchmaking/queues/" + mode + "/tickets" }

// TicketPath is where a ticket is.
func TicketPath(ticketID string) string { return TicketListPath + "/" + ticketID }

// FollowPath is the stream that follows a ticket, too.
func FollowPath(ticketID string) string { return StreamPath + "?ticket_id=" + ticketID }

func joinBody(key, attrs string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"attributes":%s}`, key, attrs)
}

// JoinWith asks for a place in a queue; attributes are JSON.
func (s *System) JoinWith(token, mode, key, attributes string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, JoinPath(mode), token, joinBody(key, attributes))
}

// Joined is joinWith, which must succeed, and the ticket's id.
func (s *System) Joined(token, mode, key, attributes string) (ticketID string) {
	s.T.Helper()
	a := s.JoinWith(token, mode, key, attributes)
	if a.Status != http.StatusCreated {
		s.T.Errorf("joining %s is answered %d %s, want 201", mode, a.Status, a.Body)
	}
	return a.Text("ticket_id")
}

// ReadTicket returns a ticket, which must be there.
func (s *System) ReadTicket(token, ticketID string) map[string]any {
	s.T.Helper()
	a := s.Call(http.MethodGet, TicketPath(ticketID), token, "")
	WantStatus(s.T, a, http.StatusOK)
	return a.JSON(s.T)
}

// CancelTicket asks for the end of a ticket.
func (s *System) CancelTicket(token, ticketID string) Answer {
	s.T.Helper()
	return s.Call(http.MethodDelete, TicketPath(ticketID), token, "")
}

// Notifications are what a user's inbox has of an event type, newest first.
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

// QueueClient is a client of the Redis that has the queues; the caller closes it.
func (s *System) QueueClient() *redis.Client {
	s.T.Helper()
	options, err := redis.ParseURL(s.Redis.URL())
	kit.Must(s.T, err)
	return redis.NewClient(options)
}

// Queues lists every key of matchmaking, and the statuses of tickets: what was
// refused must not have left or changed anything.
func (s *System) Queues() string {
	s.T.Helper()
	client := s.QueueClient()
	defer client.Close()
	keys, err := client.Keys(s.T.Context(), "mm:*").Result()
	kit.Must(s.T, err)
	for i, key := range keys {
		if strings.HasPrefix(key, "mm:ticket:") {
			keys[i] += "=" + client.HGet(s.T.Context(), key, "status").Val()
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// Patient is a player whose token lasts as long as a test.
func (i *People) Patient(t testing.TB, user string) string {
	t.Helper()
	return i.Token(t, map[string]any{"sub": user, "exp": time.Now().Add(10 * time.Minute).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
}
