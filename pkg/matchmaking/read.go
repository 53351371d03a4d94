package matchmaking

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/id"
)

// Get returns a ticket of a user. Errors: ErrNotFound, fault.Unavailable.
func (s *Store) Get(ctx context.Context, userID, ticketID string) (Ticket, error) {
	mode, err := s.modeOf(ticketID)
	if err != nil {
		return Ticket{}, err
	}
	answer, err := s.run(ctx, readScript, mode, []string{ticketKey(mode.Name, ticketID)}, ticketID, userID, maxUnannounced)
	if err != nil {
		return Ticket{}, err
	}
	if len(answer) == 0 {
		return Ticket{}, ErrNotFound
	}
	now, fields := moment(number(answer[0])), fieldsOf(answer[1])
	ticket := ticketOf(ticketID, fields)
	switch {
	case len(answer) > 2:
		facts := factsOf(now, answer[2].([]any))
		ticket.Waiting = facts.waiting(mode, s.rules)
	case ticket.Status == Queued:
		ticket.Status = Expired // no pass has run since
	case ticket.Status == Matched:
		ticket.Made = madeOf(fields)
	}
	return ticket, nil
}

// Changed reports for each ticket whether it may have changed since it was read: a
// QUEUED one may have ended, a MATCHED one may have its session. It reads a few fields
// in one round trip and runs no script, which is much cheaper than Get. If this
// process's clock is ahead of Redis', it reports a change a little early. Its error is
// fault.Unavailable.
func (s *Store) Changed(ctx context.Context, tickets []Ticket) ([]bool, error) {
	changed := make([]bool, 0, len(tickets))
	failed, failure := 0, error(nil)
	for batch := range slices.Chunk(tickets, changedBatch) {
		pipe := s.client.Pipeline()
		answers := make([]*redis.SliceCmd, len(batch))
		for i, t := range batch {
			answers[i] = pipe.HMGet(ctx, ticketKey(t.Mode, t.ID), "status", "session", "session_error")
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		for i, t := range batch {
			fields, err := answers[i].Result()
			if err != nil { // the node of its mode is away: no known change
				failed, failure = failed+1, err
				changed = append(changed, false)
				continue
			}
			status, placed := text(fields[0]), text(fields[1]) != "" || text(fields[2]) != ""
			over := t.Status == Queued && !time.Now().Before(t.ExpiresAt)
			changed = append(changed, status != t.Status || over || placed && t.Status == Matched)
		}
	}
	if failed > 0 && failed == len(tickets) {
		return nil, unreachable(failure)
	}
	return changed, nil
}

// changedBatch bounds one pipeline of Changed, since other callers wait behind it.
const changedBatch = 500

// Latest returns the latest ticket of a user in each mode, as long as it can be
// read. Its error is fault.Unavailable.
func (s *Store) Latest(ctx context.Context, userID string) ([]Ticket, error) {
	pipe := s.client.Pipeline()
	latest := make([]*redis.StringCmd, len(s.rules.Modes))
	for i, mode := range s.rules.Modes {
		latest[i] = pipe.Get(ctx, activeKey(mode.Name, userID))
	}
	_, _ = pipe.Exec(ctx) // each answer has its own error
	tickets := []Ticket{}
	for _, command := range latest {
		ticketID, err := command.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, unreachable(err)
		}
		ticket, err := s.Get(ctx, userID, ticketID)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		tickets = append(tickets, ticket)
	}
	return tickets, nil
}

// modeOf returns the queue of a ticket, or ErrNotFound if the id is no ticket's.
func (s *Store) modeOf(ticketID string) (Mode, error) {
	name, _, _ := strings.Cut(ticketID, "_")
	mode, err := s.rules.mode(name)
	if err == nil {
		_, err = id.Parse(name, ticketID)
	}
	if err != nil {
		return Mode{}, ErrNotFound
	}
	return mode, nil
}

func fieldsOf(answer any) map[string]string {
	list, _ := answer.([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		fields[text(list[i])] = text(list[i+1])
	}
	return fields
}

func ticketOf(ticketID string, fields map[string]string) Ticket {
	ticket := Ticket{
		ID: ticketID, Mode: fields["mode"], Status: fields["status"],
		CreatedAt: millis(fields["created_at"]), ExpiresAt: millis(fields["expires_at"]),
		Attributes: map[string]any{},
	}
	_ = json.Unmarshal([]byte(fields["attributes"]), &ticket.Attributes) // join.lua wrote it
	return ticket
}

func madeOf(fields map[string]string) *Made {
	at, peer, _ := strings.Cut(fields["peer"], " ")
	made := &Made{
		MatchID: fields["match_id"], MatchedAt: millis(at), PeerUserIDs: []string{peer},
		SessionError: fields["session_error"],
	}
	if session := fields["session"]; session != "" {
		made.Session = new(Session)
		if json.Unmarshal([]byte(session), made.Session) != nil {
			made.Session = nil
		}
	}
	return made
}

func millis(text string) time.Time {
	ms, _ := strconv.ParseInt(text, 10, 64) // join.lua wrote it
	return moment(ms)
}

// State is what is going on in a queue.
type State struct {
	Mode        string
	Waiting     int           // tickets
	Oldest      time.Duration // how long the first of them has waited
	Unannounced int           // matches whose events are not known to have arrived
	Dead        int           // matches that could not be announced at all
	RecentWait  time.Duration // how long recently matched players waited, 0 if there are none
}

// States returns the state of each queue. It runs no script. Its error is
// fault.Unavailable.
func (s *Store) States(ctx context.Context) ([]State, error) {
	pipe := s.client.Pipeline()
	type answers struct {
		depth, unannounced, dead *redis.IntCmd
		first                    *redis.ZSliceCmd
		stats                    *redis.SliceCmd
	}
	asked := make([]answers, len(s.rules.Modes))
	for i, mode := range s.rules.Modes {
		queue := key("queue", mode.Name)
		asked[i] = answers{
			depth: pipe.ZCard(ctx, queue), first: pipe.ZRangeWithScores(ctx, queue, 0, 0),
			unannounced: pipe.XLen(ctx, eventsKey(mode.Name)), dead: pipe.XLen(ctx, key("dead", mode.Name)),
			stats: pipe.HMGet(ctx, key("stats", mode.Name), "matched_at", "wait_ms"),
		}
	}
	now := pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, unreachable(err)
	}
	states := make([]State, len(asked))
	for i, a := range asked {
		states[i] = State{
			Mode: s.rules.Modes[i].Name, Waiting: int(a.depth.Val()), Unannounced: int(a.unannounced.Val()), Dead: int(a.dead.Val()),
		}
		if first := a.first.Val(); len(first) > 0 {
			states[i].Oldest = max(now.Val().Sub(moment(int64(first[0].Score))), 0)
		}
		if stats := a.stats.Val(); now.Val().Sub(millis(text(stats[0]))) < estimateFor {
			wait, _ := strconv.ParseInt(text(stats[1]), 10, 64) // the scripts wrote it
			states[i].RecentWait = time.Duration(wait) * time.Millisecond
		}
	}
	return states, nil
}
