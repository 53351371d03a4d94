// Package live tells whoever streams to a user that there may be news in the
// table. A nudge is an empty message of core NATS on live.<user_id>: it may be
// lost, come twice or come late. The table is the truth; whoever streams looks
// at it on every nudge, and now and then without one.
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
	// A broker that hangs without closing the connection is noticed after about
	// pingInterval times pingsOut, or when it takes no bytes for writeTimeout.
	pingInterval = 15 * time.Second
	pingsOut     = 2
	writeTimeout = 2 * time.Second
	// flushTimeout bounds the wait for the broker to know new listeners.
	flushTimeout = 2 * time.Second
	// closeWait bounds Close; a connection attempt under way may outlast it.
	closeWait = time.Second

	outgoingSize = 4096 // nudges on their way out, per process
	incomingSize = 8192 // nudges that came and were not yet handed on
)

// Hub is one connection, the nudges that go out over it and the listeners that
// wait for them. It connects when it is first used and goes on reconnecting for
// ever. Only its own goroutine touches the connection, because the library
// holds a lock while it dials: no method of Hub but Close ever waits for it.
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

// New returns a hub that has not connected yet; name is shown to operators.
func New(url, name string) *Hub {
	h := &Hub{
		url: url, name: name, listeners: newListeners(),
		outgoing: make(chan string, outgoingSize), incoming: make(chan *nats.Msg, incomingSize), missed: make(chan struct{}, 1),
	}
	h.context, h.end = context.WithCancel(context.Background())
	return h
}

// Connect begins to connect and returns at once. Tell and Listen do it too, but
// what is told before there is a connection is lost: whoever tells calls Connect
// when it starts.
func (h *Hub) Connect() {
	h.start.Lock()
	defer h.start.Unlock()
	if h.started || h.context.Err() != nil {
		return
	}
	h.started = true
	h.running.Go(h.run)
}

// Tell nudges everyone, in whatever process, who listens to userID. It never
// waits, so the context does not matter. While there is no connection, when
// more than 4,096 nudges wait to go out, and for a user that nobody can listen
// to, it does nothing; see Lost.
func (h *Hub) Tell(_ context.Context, userID string) {
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

// Lost returns how many nudges this hub knows it did not send.
func (h *Hub) Lost() int64 { return h.lost.Load() }

var errClosed = errors.New("the hub is closed")

// Listen returns a channel that holds one token at most, however often the user
// is told of. It gets its first token when the broker knows of this listener,
// and one after each reconnect: what came before was missed, so the reader looks
// at the table now. Listen does not wait for a connection. The channel is never
// closed; stop ends the listening and may be called again. The error is
// ErrUserID, or fault.Unavailable after Close.
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

// Close sends the nudges that wait to go out and ends the connection. It waits
// for a second at most.
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
