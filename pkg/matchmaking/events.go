package matchmaking

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
)

// EventType is the short type of a match's event.
const EventType = "MatchMade"

//go:embed requeue.lua
var requeueSource string

var requeueScript = redis.NewScript(requeueSource)

// group is the consumer group that claims entries of a mode's stream.
const group = "announce"

// entry holds the matches of one pass. It stays in the stream until notification has
// all of their events.
type entry struct {
	id      string // <ms>-<n>, by the clock of Redis
	matches []announcement
}

// announcement is a match to be announced to its players.
type announcement struct {
	Match
	// traceparents are those of the requests that made the tickets; either may be empty.
	// The event goes on in the trace of the ticket that waited longer.
	traceparents [2]string
	// dedup, when not empty, replaces the event's id in the broker's deduplication: the
	// event is republished because the broker lost it.
	dedup string
	raw   string // as in the entry
	err   error  // why it cannot be read
}

// entryOf reads an entry of the stream.
func entryOf(mode string, message redis.XMessage) entry {
	e := entry{id: message.ID}
	for matchID, value := range message.Values {
		raw, _ := value.(string)
		e.matches = append(e.matches, announcementOf(mode, matchID, raw))
	}
	slices.SortFunc(e.matches, func(a, b announcement) int { return strings.Compare(a.ID, b.ID) })
	return e
}

// entryLines is the number of lines that queue.lua (pair) writes for a match: event id,
// matched_at in ms, the traceparents of both tickets, and ticket id and user id of both players. A match
// that is republished has one line more, its dedup.
const entryLines = 7

// announcementOf parses the lines of entryLines.
func announcementOf(mode, matchID, raw string) announcement {
	a := announcement{raw: raw, Match: Match{ID: matchID, Mode: mode}}
	lines := strings.Split(raw, "\n")
	if len(lines) != entryLines && len(lines) != entryLines+1 {
		a.err = fmt.Errorf("%w: an entry of %d lines", event.ErrUnreadable, len(lines))
		return a
	}
	ms, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		a.err = fmt.Errorf("%w: matched_at: %w", event.ErrUnreadable, err)
		return a
	}
	a.EventID, a.MatchedAt = lines[0], moment(ms)
	a.traceparents[0], a.traceparents[1], _ = strings.Cut(lines[2], " ")
	a.Players = [2]Player{{TicketID: lines[3], UserID: lines[4]}, {TicketID: lines[5], UserID: lines[6]}}
	if len(lines) > entryLines {
		a.dedup = lines[entryLines]
	}
	return a
}

// again returns the lines of a new entry for the match, with a dedup that the broker
// does not know yet.
func (a announcement) again() string {
	lines := strings.SplitN(a.raw, "\n", entryLines+1)
	lines = lines[:min(len(lines), entryLines)]
	return strings.Join(append(lines, uuid.NewString()), "\n")
}

// record returns the match's event.
func (a announcement) record(session *Session, sessionError string) (event.Record, error) {
	if a.err != nil {
		return event.Record{}, a.err
	}
	payload, err := json.Marshal(struct {
		EventID      string    `json:"event_id"`
		EventType    string    `json:"event_type"`
		OccurredAt   string    `json:"occurred_at"`
		MatchID      string    `json:"match_id"`
		Mode         string    `json:"mode"`
		Players      [2]Player `json:"players"`
		Session      *Session  `json:"session,omitempty"`
		SessionError string    `json:"session_error,omitempty"`
	}{
		a.EventID, EventType, a.MatchedAt.Format(time.RFC3339Nano), a.ID, a.Mode, a.Players, session, sessionError,
	})
	return event.Record{
		ID: a.EventID, Type: EventType, Key: a.ID, OccurredAt: a.MatchedAt, Traceparent: a.traceparents[0], Payload: payload,
	}, err
}

// requeue puts some matches of an entry at the end of the stream and removes the entry.
func (s *Store) requeue(ctx context.Context, mode, entryID string, keep map[string]string) error {
	args := make([]any, 0, 2+2*len(keep))
	args = append(args, group, entryID)
	for matchID, raw := range keep {
		args = append(args, matchID, raw)
	}
	return requeueScript.Run(ctx, s.client, []string{eventsKey(mode)}, args...).Err()
}

// age is how long ago an entry was written.
func (e entry) age(now time.Time) time.Duration {
	text, _, _ := strings.Cut(e.id, "-")
	return now.Sub(millis(text))
}
