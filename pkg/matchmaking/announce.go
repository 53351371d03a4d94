package matchmaking

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

//go:embed session.lua
var sessionSource string

var sessionScript = redis.NewScript(sessionSource)

const (
	// claimEntries is how many entries, of up to MaxPairs matches, a step claims.
	claimEntries = 4
	// entryLease is how long a worker may hold entries before another one claims them;
	// longer than allocating servers and publishing together.
	entryLease = 15 * time.Second
	// entryRetry is when matches that could not be announced are retried.
	entryRetry = 2 * time.Second
	// allocations bounds the concurrent calls of the allocator, and allocateTimeout each of
	// them. A step begins calls for allocatingTimeout: matches whose turn does not come are
	// the next step's.
	allocations       = 16
	allocateTimeout   = 3 * time.Second
	allocatingTimeout = entryLease / 3
	noteTimeout       = time.Second
	publishTimeout    = 5 * time.Second
)

// Announcer allocates a game server for each match and publishes the match's event.
// It claims entries of the modes' streams through a Redis consumer group: when a worker
// dies, another one claims its entries at the end of the lease. The event may then be
// published twice; consumers deduplicate by its id.
type Announcer struct {
	AnnouncerConfig

	mutex   sync.Mutex
	cursors map[string]string             // by mode, where the search for abandoned entries continues
	handled map[string]map[string]outcome // by entry and match, of entries that are not finished
}

// outcome is how an announcer has handled a match.
type outcome int

const (
	pending outcome = iota
	published
	buried // set aside
)

// maxHandled bounds the unfinished entries whose outcomes an announcer remembers;
// forgotten matches are published twice.
const maxHandled = 1000

// AnnouncerConfig is what an announcer works with.
type AnnouncerConfig struct {
	Store     *Store
	Allocator Allocator
	Publisher outbox.Publisher
	Worker    string        // names the process in the consumer group
	Patience  time.Duration // a match that gets no server for so long is announced without one
	Published func()        // called as soon as the broker has events; it must not block
	Log       *slog.Logger
}

// NewAnnouncer returns an announcer.
func NewAnnouncer(c AnnouncerConfig) *Announcer {
	return &Announcer{AnnouncerConfig: c, cursors: map[string]string{}, handled: map[string]map[string]outcome{}}
}

// Step claims some matches of each mode and announces them. While the broker is away
// it claims nothing. Its errors are fault.Unavailable.
func (a *Announcer) Step(ctx context.Context) (lease.Report, error) {
	if err := a.Publisher.Ready(ctx); err != nil {
		return lease.Report{}, fault.Unreachable("The event broker", err)
	}
	var total lease.Report
	var failures []error
	for _, mode := range a.Store.Modes() {
		report, err := a.step(ctx, mode)
		total.Merge(report)
		failures = append(failures, err)
	}
	return total, errors.Join(failures...)
}

func (a *Announcer) step(ctx context.Context, mode string) (lease.Report, error) {
	entries, err := a.claim(ctx, mode)
	if err != nil || len(entries) == 0 {
		return lease.Report{}, err
	}
	report := lease.Report{More: len(entries) >= claimEntries}
	sessions, err := a.sessions(ctx, mode, entries)
	if err != nil {
		return report, err
	}
	results := a.publish(ctx, entries, sessions)
	for _, e := range entries {
		if err := a.finish(ctx, mode, e, results, &report); err != nil {
			return report, unreachable(err)
		}
	}
	return report, nil
}

// unhandled returns the matches of an entry that have no outcome yet.
func (a *Announcer) unhandled(e entry) []announcement {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(e.matches), func(m announcement) bool { return a.handled[e.id][m.ID] != pending })
}

// claim takes new entries, and those whose lease has expired.
func (a *Announcer) claim(ctx context.Context, mode string) ([]entry, error) {
	a.mutex.Lock()
	cursor := a.cursors[mode]
	a.mutex.Unlock()
	if cursor == "" {
		cursor = "0-0"
	}
	stream := eventsKey(mode)
	pipe := a.Store.client.Pipeline()
	old := pipe.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: stream, Group: group, Consumer: a.Worker, MinIdle: entryLease, Start: cursor, Count: claimEntries})
	fresh := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: a.Worker, Streams: []string{stream, ">"}, Count: claimEntries, Block: -1})
	_, _ = pipe.Exec(ctx) // each answer has its own error
	left, next, err := old.Result()
	if err != nil && strings.HasPrefix(err.Error(), "NOGROUP") {
		// The first step ever, or Redis lost the group: read from the beginning.
		if err := a.Store.client.XGroupCreateMkStream(ctx, stream, group, "0").Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
			return nil, unreachable(err)
		}
		return a.claim(ctx, mode)
	}
	if err != nil {
		return nil, unreachable(err)
	}
	a.mutex.Lock()
	a.cursors[mode] = next
	a.mutex.Unlock()
	var entries []entry
	for _, message := range left {
		entries = append(entries, entryOf(mode, message))
	}
	streams, err := fresh.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unreachable(err)
	}
	for _, s := range streams {
		for _, message := range s.Messages {
			entries = append(entries, entryOf(mode, message))
		}
	}
	return entries, nil
}

// place is where a match is played, or why it has no server.
type place struct {
	session *Session
	reason  string // session_error
	err     error  // why there is no decision yet
}

// errNoTurn is for a match whose allocator was not asked in this step.
var errNoTurn = errors.New("no time was left to ask for a game server")

// noServer is the session_error of a match that got no server in time.
const noServer = "no_server"

// sessions returns the places of all matches by match id: those that an earlier
// attempt wrote to the tickets, and new ones.
func (a *Announcer) sessions(ctx context.Context, mode string, entries []entry) (map[string]place, error) {
	now, err := a.Store.client.Time(ctx).Result()
	if err != nil {
		return nil, unreachable(err)
	}
	pipe := a.Store.client.Pipeline()
	known := map[string]*redis.StringCmd{}
	for _, e := range entries {
		for _, m := range a.unhandled(e) {
			if m.err == nil {
				known[m.ID] = pipe.GetRange(ctx, ticketKey(mode, m.Players[0].TicketID), 0, -1) // "" if it is gone
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && len(known) > 0 {
		return nil, unreachable(err)
	}
	allocating, cancel := context.WithTimeout(ctx, allocatingTimeout)
	defer cancel()
	places := map[string]place{}
	var mutex sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, allocations)
	for _, e := range entries {
		for _, m := range a.unhandled(e) {
			if m.err != nil {
				continue
			}
			if p, ok := placeOf(storedOf(known[m.ID].Val())); ok {
				mutex.Lock()
				places[m.ID] = p
				mutex.Unlock()
				continue
			}
			slots <- struct{}{}
			group.Go(func() {
				p := a.allocate(allocating, m, now.Sub(m.MatchedAt))
				mutex.Lock()
				places[m.ID] = p
				mutex.Unlock()
				<-slots
			})
		}
	}
	group.Wait()
	return places, a.remember(ctx, mode, entries, places)
}

func placeOf(t stored) (place, bool) {
	if t.session != "" {
		session := new(Session)
		return place{session: session}, json.Unmarshal([]byte(t.session), session) == nil
	}
	return place{reason: t.sessionError}, t.sessionError != ""
}

// allocate begins no call when ctx has ended. One that has begun goes on: it may get a server.
func (a *Announcer) allocate(ctx context.Context, m announcement, age time.Duration) place {
	if ctx.Err() != nil {
		return place{err: errNoTurn}
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), allocateTimeout)
	defer cancel()
	session, err := a.Allocator.Allocate(asking, m.Match)
	switch {
	case err == nil:
		return place{session: &session}
	case age < a.Patience:
		a.Log.WarnContext(ctx, "no game server yet", "match_id", m.ID, "error", err.Error())
		return place{err: err}
	}
	a.Log.ErrorContext(ctx, "match without a game server", "match_id", m.ID, "error", err.Error())
	return place{reason: noServer}
}

// remember notes the places on the tickets, before they are announced. If another
// worker was faster, its place wins and replaces ours in places.
func (a *Announcer) remember(ctx context.Context, mode string, entries []entry, places map[string]place) error {
	pipe := a.Store.client.Pipeline()
	noted := map[string]*redis.Cmd{}
	for _, e := range entries {
		for _, m := range a.unhandled(e) {
			p, ok := places[m.ID]
			if !ok || p.err != nil {
				continue
			}
			what := sessionErrorWord + " " + p.reason
			if p.session != nil {
				encoded, err := json.Marshal(p.session)
				if err != nil {
					return err
				}
				what = sessionWord + " " + string(encoded)
			}
			noted[m.ID] = sessionScript.Eval(ctx, pipe, []string{ticketKey(mode, m.Players[0].TicketID), ticketKey(mode, m.Players[1].TicketID)}, what)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	// Also when the tick's time is up: a server that is not noted is asked for again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	if _, err := pipe.Exec(ctx); err != nil {
		return unreachable(err)
	}
	for matchID, command := range noted {
		what, err := command.Text()
		if err != nil {
			return unreachable(err)
		}
		if p, ok := placeOf(stored{}.with(what)); ok {
			places[matchID] = p
		}
	}
	return nil
}

// publish publishes all matches that have a place and returns each one's error.
func (a *Announcer) publish(ctx context.Context, entries []entry, places map[string]place) map[string]error {
	results := map[string]error{}
	var ids []string
	var messages []event.Message
	var others []string // of the players who waited less
	for _, e := range entries {
		for _, m := range a.unhandled(e) {
			p := places[m.ID]
			if p.err != nil {
				results[m.ID] = p.err
				continue
			}
			record, err := m.record(p.session, p.reason)
			var message event.Message
			if err == nil {
				message, err = event.Encode(record)
			}
			if err != nil {
				results[m.ID] = fmt.Errorf("%w: %w", outbox.ErrRefused, err)
				continue
			}
			message.Dedup = m.dedup
			ids, messages, others = append(ids, m.ID), append(messages, message), append(others, m.traceparents[1])
		}
	}
	if len(messages) == 0 {
		return results
	}
	ctx, traced := outbox.Trace(ctx, messages, others...)
	defer traced.End()
	publishing, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	stored := false
	for i, err := range a.Publisher.Publish(publishing, messages) {
		traced.Ended(i, err)
		results[ids[i]] = err
		stored = stored || err == nil
	}
	if stored {
		a.Published()
	}
	return results
}

// finish acknowledges an entry once each of its matches is announced or set aside.
// Until then the entry stays claimed and is retried soon.
func (a *Announcer) finish(ctx context.Context, mode string, e entry, results map[string]error, report *lease.Report) error {
	handled := map[string]outcome{}
	var failure error
	for _, m := range a.unhandled(e) {
		report.Claimed++
		switch err := results[m.ID]; {
		case err == nil:
			report.Done++
			handled[m.ID] = published
		case errors.Is(err, outbox.ErrRefused):
			a.Log.ErrorContext(ctx, "match cannot be announced", "match_id", m.ID, "error", err.Error())
			if err := a.Store.bury(ctx, m); err != nil {
				return err
			}
			report.Dead++
			handled[m.ID] = buried
		default:
			report.Retried++
			failure = err
		}
	}
	handled = a.remembered(e.id, handled, failure != nil)
	if failure == nil {
		return a.Store.acknowledge(ctx, mode, e, handled)
	}
	a.Log.WarnContext(ctx, "matches not announced yet", "entry", e.id, "error", failure.Error())
	idle := (entryLease - entryRetry).Milliseconds()
	return a.Store.client.Do(ctx, "XCLAIM", eventsKey(mode), group, a.Worker, 0, e.id, "IDLE", idle, "JUSTID").Err()
}

// remembered merges new outcomes of an entry's matches into the known ones and returns
// all of them. They are kept until the entry is finished, so that a retry does not
// announce a match twice. A crash loses them: then matches are announced twice.
func (a *Announcer) remembered(entryID string, handled map[string]outcome, keep bool) map[string]outcome {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	maps.Copy(handled, a.handled[entryID])
	delete(a.handled, entryID)
	if keep {
		if len(a.handled) >= maxHandled {
			clear(a.handled)
		}
		a.handled[entryID] = handled
	}
	return handled
}

// bury sets aside a match that can never be announced, for an operator.
func (s *Store) bury(ctx context.Context, m announcement) error {
	return s.client.XAdd(ctx, &redis.XAddArgs{Stream: key("dead", m.Mode), Values: []any{m.ID, m.raw}}).Err()
}

// acknowledge marks an entry as handled. The entry stays until its events have
// arrived; buried matches are removed from it.
func (s *Store) acknowledge(ctx context.Context, mode string, e entry, handled map[string]outcome) error {
	keep := map[string]string{}
	for _, m := range e.matches {
		if handled[m.ID] != buried {
			keep[m.ID] = m.raw
		}
	}
	if len(keep) < len(e.matches) {
		return s.requeue(ctx, mode, e.id, keep) // which announces the others once more
	}
	return s.client.XAck(ctx, eventsKey(mode), group, e.id).Err()
}
