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

// EventType is the short type of the event that tells of a match.
const EventType = "MatchMade"

//go:embed requeue.lua
var requeueSource string

var requeueScript = redis.NewScript(requeueSource)

// group is the consumer group that claims entries of a mode's stream.
const group = "announce"

// entry is what one pass wrote to the stream: the matches that it made. It stays
// there until notification has all of their events.
type entry struct {
	id      string // <ms>-<n>, by the clock of Redis
	matches []announcement
}

// announcement is a match on its way to its players.
type announcement struct {
	Match
	traceparent string
	// dedup, when not empty, stands for the event's id in the broker's deduplication:
	// it is published again because the broker lost it.
	dedup string
	raw   string // as it is in the entry
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

// entryLines is what queue.lua writes of a match (pair), a line each: event id,
// matched_at in ms, traceparent, and ticket id and user id of both players. One that
// is published again has its dedup as one line more.
const entryLines = 7

// announcementOf reads what queue.lua wrote.
func announcementOf(mode, matchID, raw string) announcement {
	a := announcement{raw: raw, Match: Match{ID: matchID, Mode: mode}}
	lines := strings.Split(raw, "\n")
	if len(lines) != entryLines && len(lines) != entryLines+1 {
		a.err = fmt.Errorf("%w: an entry of %d lines", event.ErrUnreadable, len(lines))
		return a
	}
	ms, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		a.err = fmt.Errorf("%w: matched_at: %v", event.ErrUnreadable, err)
		return a
	}
	a.EventID, a.MatchedAt, a.traceparent = lines[0], moment(ms), lines[2]
	a.Players = [2]Player{{TicketID: lines[3], UserID: lines[4]}, {TicketID: lines[5], UserID: lines[6]}}
	if len(lines) > entryLines {
		a.dedup = lines[entryLines]
	}
	return a
}

// again is the match as it goes into a new entry, to be published although the
// broker may remember it.
func (a announcement) again() string {
	lines := strings.SplitN(a.raw, "\n", entryLines+1)
	lines = lines[:min(len(lines), entryLines)]
	return strings.Join(append(lines, uuid.NewString()), "\n")
}

// record is the event that tells of the match.
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
		ID: a.EventID, Type: EventType, Key: a.ID, OccurredAt: a.MatchedAt, Traceparent: a.traceparent, Payload: payload,
	}, err
}

// requeue puts some matches of an entry at the end of the stream and removes it.
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
