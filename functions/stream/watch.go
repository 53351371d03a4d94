package stream

import (
	"context"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const (
	// watchEvery is how often all followed tickets are checked.
	watchEvery = time.Second
	// reasonEvery is how often a waiting ticket is read whole, by the first check after
	// it: its place in the queue, and why it is not matched yet, change without its
	// status.
	reasonEvery = 5*time.Second - watchEvery/2
)

// watch checks the tickets of all streams of a process together, and finds those worth
// reading. In Redis a command among many costs a fraction of a single one, and a check
// costs a fraction of reading a waiting ticket.
type watch struct {
	store *matchmaking.Store

	mutex    sync.Mutex
	followed map[*followedTicket]reading
	running  bool
}

// reading is a ticket as a stream last read it, and the time of that.
type reading struct {
	ticket matchmaking.Ticket
	at     time.Time
}

// put watches t until drop; a stream puts it again whenever it has read it.
func (w *watch) put(t *followedTicket, ticket matchmaking.Ticket) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.followed[t] = reading{ticket, time.Now()}
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *watch) drop(t *followedTicket) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.followed, t)
}

// run ends when no ticket is followed any more.
func (w *watch) run() {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for range every.C {
		followed, readings := w.list()
		if len(followed) == 0 {
			return
		}
		w.look(followed, readings)
	}
}

func (w *watch) list() (followed []*followedTicket, readings []reading) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for t, r := range w.followed {
		followed, readings = append(followed, t), append(readings, r)
	}
	w.running = len(followed) > 0
	return followed, readings
}

// look nudges the streams whose tickets may have changed. While Redis is away it nudges
// none.
func (w *watch) look(followed []*followedTicket, readings []reading) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	tickets := make([]matchmaking.Ticket, len(readings))
	for i, r := range readings {
		tickets[i] = r.ticket
	}
	changed, err := w.store.Changed(ctx, tickets)
	if err != nil {
		return
	}
	for i, r := range readings {
		if changed[i] || r.ticket.Status == matchmaking.Queued && time.Since(r.at) >= reasonEvery {
			followed[i].nudge()
		}
	}
}
