package matchmaking_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// disagreements returns the contradictions between the answers to clients and matchers,
// the tickets in the end, and the streams. With nil passes it does not check those.
func disagreements(s setup, records []*record, passes map[string]bool) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	tickets := map[string]matchmaking.Ticket{}
	users := map[string]string{}
	byMatch, byWaiter := map[string][]string{}, map[string][]stay{}
	for _, r := range records {
		ticket, err := s.Get(s.t.Context(), r.user, r.joined.TicketID)
		if err != nil {
			say("%s: %v", r.joined.TicketID, err)
			continue
		}
		if _, twice := tickets[ticket.ID]; twice {
			say("%s was given out twice", ticket.ID)
		}
		tickets[ticket.ID], users[ticket.ID], r.ended = ticket, r.user, ticket.Status
		if (r.cancels > 0) != (ticket.Status == matchmaking.Cancelled) || r.cancels > 1 {
			say("%s was cancelled %d times and is %s", ticket.ID, r.cancels, ticket.Status)
		}
		if ticket.Made != nil {
			byMatch[ticket.MatchID] = append(byMatch[ticket.MatchID], ticket.ID)
		}
		waiter := r.user + " in " + r.mode
		byWaiter[waiter] = append(byWaiter[waiter], stayOf(ticket, r.cancelled))
	}
	for match, ids := range byMatch {
		if len(ids) != 2 {
			say("%s has %d tickets", match, len(ids))
			continue
		}
		a, b := tickets[ids[0]], tickets[ids[1]]
		one, two := users[a.ID], users[b.ID]
		if !slices.Equal(a.PeerUserIDs, []string{two}) || !slices.Equal(b.PeerUserIDs, []string{one}) || one == two || a.Mode != b.Mode || !a.MatchedAt.Equal(b.MatchedAt) {
			say("%s: %s has %+v and %s has %+v", match, one, a.Made, two, b.Made)
		}
	}
	announced := announcedMatches(s, say)
	for match, ids := range announced {
		in := byMatch[match]
		slices.Sort(in)
		if sorted := slices.Sorted(slices.Values(ids)); !slices.Equal(sorted, in) {
			say("%s is in the stream with tickets %v, but has %v", match, sorted, in)
		}
		if passes != nil && !passes[match] {
			say("%s is in the stream, but no pass made it", match)
		}
	}
	for match := range byMatch {
		if announced[match] == nil {
			say("%s is not in the stream", match)
		}
	}
	for match := range passes {
		if announced[match] == nil {
			say("%s was made by a pass, but is not in the stream", match)
		}
	}
	for waiter, stays := range byWaiter {
		for i, a := range stays {
			for _, b := range stays[:i] {
				if a.from.Before(b.until) && b.from.Before(a.until) {
					say("%s waits with %s and %s at once", waiter, a.ticket, b.ticket)
				}
			}
		}
	}
	return wrong
}

// announcedMatches returns the tickets of each match that is in a stream to be announced.
func announcedMatches(s setup, say func(format string, args ...any)) map[string][]string {
	s.t.Helper()
	announced := map[string][]string{}
	for _, mode := range s.Modes() {
		entries, err := s.client.XRange(s.t.Context(), "mm:events:{"+mode+"}", "-", "+").Result()
		kit.Must(s.t, err)
		for _, entry := range entries {
			for match, value := range entry.Values {
				lines := strings.Split(value.(string), "\n")
				if announced[match] != nil || len(lines) != 7 || strings.ReplaceAll(lines[0], "-", "") == "" {
					say("%s is in the stream twice, or with %d lines instead of 7", match, len(lines))
					continue
				}
				announced[match] = []string{lines[3], lines[5]}
			}
		}
	}
	return announced
}

// stay is the time in which a ticket waited, without the moment until.
type stay struct {
	ticket      string
	from, until time.Time
}

// stayOf is exact if the ticket shows when it ended. Of a cancelled ticket only a time is
// known at which it still waited.
func stayOf(ticket matchmaking.Ticket, cancelled time.Time) stay {
	switch {
	case ticket.Made != nil:
		return stay{ticket.ID, ticket.CreatedAt, ticket.MatchedAt}
	case ticket.Status == matchmaking.Cancelled:
		return stay{ticket.ID, ticket.CreatedAt, cancelled.Truncate(time.Millisecond)}
	}
	return stay{ticket.ID, ticket.CreatedAt, ticket.ExpiresAt}
}
