package stream

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const (
	// ticketEvery is how often a stream asks whether its ticket is matched or has ended.
	ticketEvery = time.Second
	// reasonEvery is how often it reads all of a ticket that waits: its place in the
	// queue and why it is not matched yet change without a nudge, and are dear for Redis.
	reasonEvery     = 5 * time.Second
	ticketEventName = "ticket"
)

// followedTicket is the ticket of a stream.
type followedTicket struct {
	userID, id string
	sent       *matchmaking.Ticket // as the reader has it; nil before the first time
	read       time.Time           // when all of it was read last
	over       bool                // it will not change any more
}

func (f *function) followTicket(ctx context.Context, userID, ticketID string) (*followedTicket, error) {
	_, err := f.queue.Get(ctx, userID, ticketID)
	return &followedTicket{userID: userID, id: ticketID}, err
}

// due ticks as long as the ticket may change.
func (t *followedTicket) due(every *time.Ticker) <-chan time.Time {
	if t == nil || t.over {
		return nil
	}
	return every.C
}

// tellTicket sends the ticket when it has changed. Its error means that the reader
// is gone; a Redis that is away ends nothing.
func (f *function) tellTicket(ctx context.Context, events *fn.Events, t *followedTicket) error {
	if t == nil || t.over {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if time.Since(t.read) < reasonEvery {
		if changed, err := f.queue.Changed(looking, *t.sent); err != nil || !changed {
			return nil
		}
	}
	now, err := f.queue.Get(looking, t.userID, t.id)
	if err != nil {
		t.over = errors.Is(err, matchmaking.ErrNotFound)
		return nil
	}
	t.read = time.Now()
	if t.sent != nil && reflect.DeepEqual(*t.sent, now) {
		return nil
	}
	t.sent = &now
	t.over = ended(now)
	return events.Tell(ticketEventName, now)
}

func ended(t matchmaking.Ticket) bool {
	switch t.Status {
	case matchmaking.Queued:
		return false
	case matchmaking.Matched:
		return t.Session != nil || t.SessionError != ""
	}
	return true
}
