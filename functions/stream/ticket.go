package stream

import (
	"context"
	"errors"
	"reflect"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const ticketEventName = "ticket"

// followedTicket is the ticket of a stream.
type followedTicket struct {
	userID, id string
	opened     matchmaking.Ticket  // as it was when the stream was opened
	sent       *matchmaking.Ticket // as it was sent last; nil before the first time
	over       bool                // it will not change any more
	nudges     chan struct{}       // it may have changed
}

func (f *function) followTicket(ctx context.Context, userID, ticketID string) (*followedTicket, error) {
	ticket, err := f.queue.Get(ctx, userID, ticketID)
	return &followedTicket{userID: userID, id: ticketID, opened: ticket, nudges: make(chan struct{}, 1)}, err
}

func (t *followedTicket) nudge() {
	select {
	case t.nudges <- struct{}{}:
	default: // one is pending already
	}
}

// due returns a channel that says when to read the ticket, nil when it will not change.
func (t *followedTicket) due() <-chan struct{} {
	if t == nil || t.over {
		return nil
	}
	return t.nudges
}

// tellTicket sends the ticket when it has changed. Its error means that the reader is
// gone; a Redis that is away does not end the stream.
func (f *function) tellTicket(ctx context.Context, events *fn.Events, t *followedTicket) error {
	if t == nil || t.over {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now, err := f.queue.Get(looking, t.userID, t.id)
	if errors.Is(err, matchmaking.ErrNotFound) {
		t.over = true
		f.watch.drop(t)
	}
	if err != nil {
		return nil
	}
	f.watch.put(t, now)
	if t.sent != nil && reflect.DeepEqual(*t.sent, now) {
		return nil
	}
	t.sent = &now
	if t.over = ended(now); t.over {
		f.watch.drop(t)
	}
	return events.SendWithoutID(ticketEventName, now)
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
