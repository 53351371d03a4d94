package matchmaking_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// wantWhole fails if Redis contradicts itself, and returns the tickets by id: each ticket
// is there with all its parts or not at all, the queue has the waiting ones and no
// others, and the two of a match name each other.
func wantWhole(s *system.System) map[string]map[string]string {
	s.T.Helper()
	client := s.QueueClient()
	defer client.Close()
	ctx := s.T.Context()
	keys, err := client.Keys(ctx, "mm:*").Result()
	kit.Must(s.T, err)
	tickets, matches := map[string]map[string]string{}, map[string][]map[string]string{}
	waiting := map[string]bool{}
	for _, key := range keys {
		kind, rest, _ := strings.Cut(strings.TrimPrefix(key, "mm:"), ":")
		mode, id, _ := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		id = strings.TrimPrefix(id, ":")
		switch kind {
		case "queue":
			for _, id := range client.ZRange(ctx, key, 0, -1).Val() {
				waiting[id] = true
			}
			continue
		case "ticket":
			ticket := ticketFields(client.Get(ctx, key).Val())
			tickets[id] = ticket
			for _, field := range []string{"user_id", "created_at", "expires_at", "score", "attributes"} {
				if ticket[field] == "" {
					s.T.Errorf("ticket %s has no %s: %v", id, field, ticket)
				}
			}
			if id := ticket["match_id"]; id != "" {
				matches[id] = append(matches[id], ticket)
			}
			if active := client.Exists(ctx, "mm:active:{"+mode+"}:"+ticket["user_id"]).Val(); active != 1 {
				s.T.Errorf("ticket %s: its user has no latest ticket", id)
			}
		case "due", "stats", "events", "dead":
			continue
		}
		if client.PTTL(ctx, key).Val() <= 0 { // tickets, keys, users' latest tickets, pools
			s.T.Errorf("%s never expires", key)
		}
	}
	for id, ticket := range tickets {
		expires, _ := strconv.ParseInt(ticket["expires_at"], 10, 64)
		if queued := ticket["status"] == matchmaking.Queued; queued != waiting[id] && expires > time.Now().UnixMilli() {
			s.T.Errorf("ticket %s is %s; in the queue: %t", id, ticket["status"], waiting[id])
		}
		if matched := ticket["status"] == matchmaking.Matched; matched != (ticket["match_id"] != "") {
			s.T.Errorf("ticket %s is %s in match %q", id, ticket["status"], ticket["match_id"])
		}
	}
	for id := range waiting {
		if tickets[id] == nil {
			s.T.Errorf("%s is in the queue, but there is no such ticket", id)
		}
	}
	for id, both := range matches {
		if len(both) != 2 {
			s.T.Errorf("match %s has %d tickets, want 2", id, len(both))
			continue
		}
		for i, one := range both {
			if peer := one["peer"]; peer != both[1-i]["user_id"] || peer == one["user_id"] {
				s.T.Errorf("the tickets of match %s do not name each other: %v", id, both)
			}
		}
	}
	return tickets
}

// ticketFields reads a ticket as pkg/matchmaking/queue.lua documents it.
func ticketFields(text string) map[string]string {
	names := []string{"created_at", "expires_at", "user_id", "traceparent", "score", "put", "ask", "key", "attributes"}
	fields := map[string]string{"status": matchmaking.Queued}
	for i, field := range strings.Split(text, "\x00") {
		if i < len(names) {
			fields[names[i]] = field
			continue
		}
		switch what := strings.Fields(field); {
		case len(what) == 4 && what[0] == matchmaking.Matched:
			fields["status"], fields["match_id"], fields["peer"] = what[0], what[1], what[3]
		case field == matchmaking.Cancelled || field == matchmaking.Expired:
			fields["status"] = field
		}
	}
	return fields
}
