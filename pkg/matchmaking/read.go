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
	now, stored := moment(number(answer[0])), storedOf(text(answer[1]))
	ticket := stored.ticket(mode.Name, ticketID)
	switch {
	case len(answer) > 2:
		facts := factsOf(now, answer[2].([]any))
		ticket.Waiting = facts.waiting(mode, s.rules)
	case ticket.Status == Queued:
		ticket.Status = Expired // no pass has run since
	case ticket.Status == Matched:
		ticket.Made = stored.made()
	}
	return ticket, nil
}

// Changed reports for each ticket whether it may have changed since it was read: a
// QUEUED one may have ended, a MATCHED one may have its session. It reads their texts in
// one round trip and runs no script, which is much cheaper than Get. If this
// process's clock is ahead of Redis', it reports a change a little early. Its error is
// fault.Unavailable.
func (s *Store) Changed(ctx context.Context, tickets []Ticket) ([]bool, error) {
	changed := make([]bool, 0, len(tickets))
	failed, failure := 0, error(nil)
	for batch := range slices.Chunk(tickets, changedBatch) {
		pipe := s.client.Pipeline()
		answers := make([]*redis.StringCmd, len(batch))
		for i, t := range batch {
			answers[i] = pipe.GetRange(ctx, ticketKey(t.Mode, t.ID), 0, -1) // "" if it is gone
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		for i, t := range batch {
			text, err := answers[i].Result()
			if err != nil { // the node of its mode is away: no known change
				failed, failure = failed+1, err
				changed = append(changed, false)
				continue
			}
			now := storedOf(text)
			over := t.Status == Queued && !time.Now().Before(t.ExpiresAt)
			changed = append(changed, now.status != t.Status || over || now.placed() && t.Status == Matched)
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

// stored is a ticket as queue.lua writes it; it is empty for one that is gone.
type stored struct {
	status                       string
	match                        string // its id, matched_at and the other's user id
	session, sessionError        string
	created, expires, attributes string
}

// staying is the number of fields that stay, before those of what happened.
const staying = 9

func storedOf(text string) stored {
	fields := strings.Split(text, "\x00")
	if len(fields) <= staying {
		return stored{}
	}
	s := stored{status: Queued, created: fields[0], expires: fields[1], attributes: fields[8]}
	for _, field := range fields[staying:] {
		s = s.with(field)
	}
	return s
}

// with is the ticket after something happened to it.
func (s stored) with(field string) stored {
	switch word, rest, _ := strings.Cut(field, " "); word {
	case Matched, Cancelled, Expired:
		s.status, s.match = word, rest
	case sessionWord:
		s.session = rest
	case sessionErrorWord:
		s.sessionError = rest
	}
	return s
}

// Words before a session, and before why there is none.
const (
	sessionWord      = "session"
	sessionErrorWord = "session_error"
)

// placed reports whether it is decided where the match is played.
func (s stored) placed() bool { return s.session != "" || s.sessionError != "" }

func (s stored) ticket(mode, ticketID string) Ticket {
	ticket := Ticket{
		ID: ticketID, Mode: mode, Status: s.status, CreatedAt: millis(s.created), ExpiresAt: millis(s.expires),
		Attributes: map[string]any{},
	}
	_ = json.Unmarshal([]byte(s.attributes), &ticket.Attributes) // join.lua wrote it
	return ticket
}

func (s stored) made() *Made {
	matchID, rest, _ := strings.Cut(s.match, " ")
	at, peer, _ := strings.Cut(rest, " ")
	made := &Made{MatchID: matchID, MatchedAt: millis(at), PeerUserIDs: []string{peer}, SessionError: s.sessionError}
	if s.session != "" {
		made.Session = new(Session)
		if json.Unmarshal([]byte(s.session), made.Session) != nil {
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
