package matchmaking_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// record holds the answers that clients got about a ticket.
type record struct {
	user, mode, key, text string
	joined                matchmaking.Joined
	cancels               int       // how many calls reported that they cancelled it
	cancelled             time.Time // taken before that call was sent
	match                 string    // the match's id, once an answer was MATCHED
	ended                 string    // the ticket's status in the end
}

// journal holds the answers that all clients of a race got.
type journal struct {
	mutex   sync.Mutex
	records []*record
	passes  map[string]bool // the ids of the matches that passes returned
	wrong   []string        // answers that contradict earlier ones
}

func (j *journal) say(format string, args ...any) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

func (j *journal) add(r *record) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.records = append(j.records, r)
}

// recent returns one of the latest tickets, of any user.
func (j *journal) recent(random *rand.Rand) *record {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if len(j.records) == 0 {
		return nil
	}
	return j.records[len(j.records)-1-random.IntN(min(len(j.records), 64))]
}

// join reports whether it made a ticket.
func (j *journal) join(s setup, r *record) bool {
	joined, replayed, err := s.try(r.user, r.mode, r.key, r.text)
	var refused *fault.Error
	switch {
	case errors.As(err, &refused) && refused.Code == "ticket_queued":
	case err != nil || replayed:
		j.say("join: replayed %v, %v", replayed, err)
	default:
		r.joined = joined
		j.add(r)
		return true
	}
	return false
}

func (j *journal) replay(s setup, r *record) {
	if again, replayed, err := s.try(r.user, r.mode, r.key, r.text); err != nil || !replayed || again != r.joined {
		j.say("%+v sent again: %+v, replayed %v, %v", r.joined, again, replayed, err)
	}
}

func (j *journal) cancel(s setup, r *record) {
	before := time.Now()
	ticket, cancelled, err := s.Cancel(s.t.Context(), r.user, r.joined.TicketID)
	if err != nil && !errors.Is(err, matchmaking.ErrMatched) || (err == nil) != (ticket.Status == matchmaking.Cancelled) || cancelled && err != nil {
		j.say("%s: cancelling it: %s, %v, %v", r.joined.TicketID, ticket.Status, cancelled, err)
	}
	if cancelled {
		j.mutex.Lock()
		r.cancels++
		r.cancelled = before
		j.mutex.Unlock()
	}
	if _, _, err := s.Cancel(s.t.Context(), r.user+"x", r.joined.TicketID); !errors.Is(err, matchmaking.ErrNotFound) {
		j.say("%s: another user cancels it: %v", r.joined.TicketID, err)
	}
}

func (j *journal) read(s setup, r *record) {
	j.mutex.Lock()
	cancels, match := r.cancels, r.match
	j.mutex.Unlock()
	ticket, err := s.Get(s.t.Context(), r.user, r.joined.TicketID)
	now := ""
	if err == nil && ticket.Made != nil {
		now = ticket.MatchID
	}
	if err != nil || cancels > 0 && ticket.Status != matchmaking.Cancelled || match != "" && now != match || (now != "") != (ticket.Status == matchmaking.Matched) {
		j.say("%s was cancelled %d times, in match %q, and now reads %s, in %q: %v", r.joined.TicketID, cancels, match, ticket.Status, now, err)
	}
	if now != "" {
		j.mutex.Lock()
		r.match = now
		j.mutex.Unlock()
	}
}
