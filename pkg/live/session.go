package live

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
)

// run keeps one session after the other until the hub is closed. A session ends earlier
// only when the library abandons its connection.
func (h *Hub) run() {
	for h.context.Err() == nil {
		if s, err := h.connect(); err == nil {
			s.serve()
			h.state.Store(away)
			s.conn.Close()
		} else {
			h.listeners.take() // drop changes; serve begins with all users
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
	back  // connected, before listeners got their token
	known // after that
)

// session is a connection and its subscriptions, one for each user.
type session struct {
	hub           *Hub
	conn          *nats.Conn
	subscriptions map[string]*nats.Subscription
	closed        chan struct{}
}

func (h *Hub) connect() (*session, error) {
	s := &session{hub: h, subscriptions: map[string]*nats.Subscription{}, closed: make(chan struct{})}
	// The library runs these handlers one after the other, in the order of events.
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
		// Buffered nudges are useless: listeners read the table after a reconnect.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(up), nats.ReconnectHandler(up),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { h.state.Store(away) }),
		nats.ClosedHandler(func(*nats.Conn) { close(s.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// The library dropped nudges that did not fit into incoming.
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

// sendRest sends the nudges before Close; closing the connection flushes them.
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

// subscribe updates the subscriptions to the listeners, and returns the users whose
// listeners changed.
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

// settle waits until the broker has the subscriptions, and then signals the users'
// listeners. It also signals them when the broker does not answer in time: an extra token
// does no harm.
func (s *session) settle(users iter.Seq[string]) {
	ctx, cancel := context.WithTimeout(s.hub.context, flushTimeout)
	defer cancel()
	_ = s.conn.FlushWithContext(ctx)
	for userID := range users {
		s.hub.listeners.nudge(userID)
	}
}
