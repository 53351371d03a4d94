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
	matches []told
}

// told is a match on its way to those whom it concerns.
type told struct {
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
		e.matches = append(e.matches, toldOf(mode, matchID, raw))
	}
	slices.SortFunc(e.matches, func(a, b told) int { return strings.Compare(a.ID, b.ID) })
	return e
}

// toldOf reads what queue.lua wrote.
func toldOf(mode, matchID, raw string) told {
	const lines = 7
	t := told{raw: raw, Match: Match{ID: matchID, Mode: mode}}
	parts := strings.Split(raw, "\n")
	if len(parts) != lines && len(parts) != lines+1 {
		t.err = fmt.Errorf("%w: an entry of %d lines", event.ErrUnreadable, len(parts))
		return t
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		t.err = fmt.Errorf("%w: matched_at: %v", event.ErrUnreadable, err)
		return t
	}
	t.EventID, t.MatchedAt, t.traceparent = parts[0], moment(ms), parts[2]
	t.Players = [2]Player{{TicketID: parts[3], UserID: parts[4]}, {TicketID: parts[5], UserID: parts[6]}}
	if len(parts) > lines {
		t.dedup = parts[lines]
	}
	return t
}

// again is the match as it goes into a new entry, to be published although the
// broker may remember it.
func (t told) again() string {
	lines := strings.SplitN(t.raw, "\n", 8)
	if len(lines) == 8 {
		lines = lines[:7]
	}
	return strings.Join(append(lines, uuid.NewString()), "\n")
}

// record is the event that tells of the match.
func (t told) record(session *Session, sessionError string) (event.Record, error) {
	if t.err != nil {
		return event.Record{}, t.err
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
		t.EventID, EventType, t.MatchedAt.Format(time.RFC3339Nano), t.ID, t.Mode, t.Players, session, sessionError,
	})
	return event.Record{
		ID: t.EventID, Type: EventType, Key: t.ID, OccurredAt: t.MatchedAt, Traceparent: t.traceparent, Payload: payload,
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
