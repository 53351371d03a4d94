// Package live nudges the streams of a user when there may be news in the table. A nudge
// is an empty message of core NATS on live.<user_id>, which may be lost, repeated or
// late. The table is the truth; a stream reads it on every nudge, and periodically without
// one.
package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

const (
	connectTimeout  = 3 * time.Second
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond
	// A broker that leaves two pings unanswered is gone: after 6 s another one of the cluster
	// is tried, or when it accepts no bytes for writeTimeout.
	pingInterval = 2 * time.Second
	pingsOut     = 2
	writeTimeout = 2 * time.Second
	// flushTimeout bounds the wait for the broker to confirm new subscriptions.
	flushTimeout = 2 * time.Second
	// closeWait bounds Close; a connection attempt in progress may outlast it.
	closeWait = time.Second

	outgoingSize = 4096 // nudges to be sent, per process
	incomingSize = 8192 // received nudges that are not yet dispatched
)

// Hub is one connection with its outgoing nudges and its listeners. It connects on first
// use and reconnects for ever. Only its own goroutine uses the connection, because the
// library holds a lock while it dials: no method of Hub but Close ever waits for it.
type Hub struct {
	url  string
	name string

	context   context.Context // ends with Close
	end       context.CancelFunc
	start     sync.Mutex
	started   bool
	running   sync.WaitGroup
	state     atomic.Int32 // away, back or known
	lost      atomic.Int64
	listeners listeners
	outgoing  chan string    // user ids
	incoming  chan *nats.Msg // of all subscriptions: a goroutine each would cost more
	missed    chan struct{}  // one token when nudges may have been missed
}

// New returns an unconnected hub; operators see name.
func New(url, name string) *Hub {
	h := &Hub{
		url: url, name: name, listeners: newListeners(),
		outgoing: make(chan string, outgoingSize), incoming: make(chan *nats.Msg, incomingSize), missed: make(chan struct{}, 1),
	}
	h.context, h.end = context.WithCancel(context.Background())
	return h
}

// Connect begins to connect and returns at once. Nudge and Listen do so, too, but nudges
// without a connection are lost, so senders call Connect at their start.
func (h *Hub) Connect() {
	h.start.Lock()
	defer h.start.Unlock()
	if h.started || h.context.Err() != nil {
		return
	}
	h.started = true
	h.running.Go(h.run)
}

// Nudge nudges all listeners of userID in all processes. It never waits, so it ignores the
// context. It does nothing while there is no connection, while 4,096 nudges wait to be
// sent, and for an invalid user id; see Lost.
func (h *Hub) Nudge(_ context.Context, userID string) {
	if !listenable(userID) {
		h.lost.Add(1)
		return
	}
	if h.state.Load() == away {
		h.lost.Add(1)
		h.Connect()
		return
	}
	select {
	case h.outgoing <- userID:
	default:
		h.lost.Add(1)
	}
}

// Lost returns the number of nudges that this hub knows it did not send.
func (h *Hub) Lost() int64 { return h.lost.Load() }

var errClosed = errors.New("the hub is closed")

// Listen returns a channel that holds at most one token, however many nudges arrive. It
// gets its first token when the broker has the subscription, and one after each
// reconnect: earlier nudges were missed, so the reader must read the table then. Listen
// does not wait for a connection. The channel is never closed; stop ends the listening
// and may be called again. The error is ErrUserID, or fault.Unavailable after Close.
func (h *Hub) Listen(userID string) (nudges <-chan struct{}, stop func(), err error) {
	if !listenable(userID) {
		return nil, nil, ErrUserID
	}
	if h.context.Err() != nil {
		return nil, nil, fault.Unreachable("The live stream", errClosed)
	}
	h.Connect()
	channel := h.listeners.add(userID)
	return channel, sync.OnceFunc(func() { h.listeners.remove(userID, channel) }), nil
}

// Close sends the waiting nudges and ends the connection. It waits for a second at most.
func (h *Hub) Close() {
	h.start.Lock()
	h.end()
	h.start.Unlock()
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeWait):
	}
}
