package live

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
)

// run keeps one session after the other until the hub is closed. A session ends
// earlier only when the library gave its connection up for good.
func (h *Hub) run() {
	for h.context.Err() == nil {
		if s, err := h.connect(); err == nil {
			s.serve()
			h.state.Store(away)
			s.conn.Close()
		} else {
			h.listeners.take() // forget who came and went; serve begins with everyone
		}
		select {
		case <-h.context.Done():
		case <-time.After(reconnectWait):
		}
	}
}

// States of the connection.
const (
	away  = iota
	back  // it is there, and its listeners are not told yet
	known // they are
)

// session is a connection and what it is subscribed to, one subscription a user.
type session struct {
	hub           *Hub
	conn          *nats.Conn
	subscriptions map[string]*nats.Subscription
	closed        chan struct{}
}

func (h *Hub) connect() (*session, error) {
	s := &session{hub: h, subscriptions: map[string]*nats.Subscription{}, closed: make(chan struct{})}
	// The library runs these handlers one after the other, in the order of what happened.
	up := func(*nats.Conn) {
		h.state.Store(back)
		signal(h.missed)
	}
	conn, err := nats.Connect(h.url, nats.Name(h.name),
		nats.Timeout(connectTimeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsOut), nats.FlusherTimeout(writeTimeout),
		// A password that is wrong now may be right later.
		nats.IgnoreAuthErrorAbort(),
		// A nudge that was kept while the broker was away tells nothing: listeners
		// look at the table when they are connected again.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(up), nats.ReconnectHandler(up),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { h.state.Store(away) }),
		nats.ClosedHandler(func(*nats.Conn) { close(s.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// The library dropped what did not fit into incoming.
			if errors.Is(err, nats.ErrSlowConsumer) {
				signal(h.missed)
			}
		}))
	s.conn = conn
	return s, err
}

// serve works until the hub or the connection is closed.
func (s *session) serve() {
	h := s.hub
	h.listeners.touch()
	for {
		select {
		case <-h.context.Done():
			s.sendRest()
			return
		case <-s.closed:
			return
		case userID := <-h.outgoing:
			s.send(userID)
		case msg := <-h.incoming:
			h.listeners.nudge(userOf(msg))
		case <-h.listeners.changed:
			users := s.subscribe()
			if h.state.Load() == known { // otherwise missed comes soon, and is for all
				s.settle(maps.Keys(users))
			}
		case <-h.missed:
			s.subscribe()
			if h.state.CompareAndSwap(back, known) || h.state.Load() == known {
				s.settle(maps.Keys(s.subscriptions))
			}
		}
	}
}

func (s *session) send(userID string) {
	if err := s.conn.Publish(subject(userID), nil); err != nil {
		s.hub.lost.Add(1)
	}
}

// sendRest sends what was told before Close; closing the connection flushes it.
func (s *session) sendRest() {
	for {
		select {
		case userID := <-s.hub.outgoing:
			s.send(userID)
		default:
			return
		}
	}
}

// subscribe brings the subscriptions up to date with the listeners, and returns
// the users of whom listeners came or went.
func (s *session) subscribe() map[string]bool {
	users := s.hub.listeners.take()
	for userID, wanted := range users {
		subscription, have := s.subscriptions[userID]
		switch {
		case wanted && !have:
			// It fails only when the connection is closed; the next session takes over.
			if subscription, err := s.conn.ChanSubscribe(subject(userID), s.hub.incoming); err == nil {
				s.subscriptions[userID] = subscription
			}
		case have && !wanted:
			_ = subscription.Unsubscribe() // fails only when the connection is closed
			delete(s.subscriptions, userID)
		}
	}
	return users
}

// settle waits until the broker knows the subscriptions, and then has users look
// at the table. When the broker does not answer in time they look all the same:
// a token too many does no harm.
func (s *session) settle(users iter.Seq[string]) {
	ctx, cancel := context.WithTimeout(s.hub.context, flushTimeout)
	defer cancel()
	_ = s.conn.FlushWithContext(ctx)
	for userID := range users {
		s.hub.listeners.nudge(userID)
	}
}
