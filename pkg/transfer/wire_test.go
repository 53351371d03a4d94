package transfer_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// wire stands between a store and Postgres and reads their messages. It can act before a
// given statement reaches Postgres, or when Postgres has answered it, after its commit.
type wire struct {
	t        *testing.T
	server   string // host and port of Postgres
	listener net.Listener

	mutex sync.Mutex
	plans []*plan
	live  map[*link]bool
}

// plan is what to do with the next statement that contains text. Its functions may block,
// which holds up the statement or its answer. If one returns false, the connection is cut
// and the held message is dropped.
type plan struct {
	text   string
	before func() bool
	after  func() bool
	// partly forwards the row of the answer before the rest is cut off.
	partly bool
}

func newWire(t *testing.T) *wire {
	return &wire{t: t, live: map[*link]bool{}}
}

// through starts the wire in front of the server of databaseURL and returns the URL
// that leads through it.
func (w *wire) through(databaseURL string) string {
	w.t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.server = u.Host
	for try := 0; w.listener == nil; try++ {
		port, err := proc.FreePort(0)
		if err != nil {
			w.t.Fatal(err)
		}
		if w.listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil && try == 5 {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() { _ = w.listener.Close(); w.cut() })
	go func() {
		for {
			client, err := w.listener.Accept()
			if err != nil {
				return
			}
			go w.connect(client)
		}
	}()
	u.Host = w.listener.Addr().String()
	return u.String()
}

// plan adds p to the plans; it is carried out once.
func (w *wire) plan(p plan) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.plans = append(w.plans, &p)
}

// planned returns how many plans were not carried out.
func (w *wire) planned() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.plans)
}

// cut closes all connections.
func (w *wire) cut() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for l := range w.live {
		l.close()
	}
}

// cutOne closes a random connection.
func (w *wire) cutOne() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for l := range w.live { // in random order
		l.close()
		return
	}
}

// take removes and returns the plan for a statement, nil if there is none.
func (w *wire) take(statement string) *plan {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	i := slices.IndexFunc(w.plans, func(p *plan) bool { return strings.Contains(statement, p.text) })
	if i < 0 {
		return nil
	}
	p := w.plans[i]
	w.plans = slices.Delete(w.plans, i, i+1)
	return p
}

// link is one connection through the wire.
type link struct {
	client, server net.Conn
	prepared       map[string]string // statements by their names
	ended          chan struct{}     // closed when the server's messages end
	mutex          sync.Mutex
	held           *plan // the plan of the statement that Postgres is answering
}

func (l *link) close() { _, _ = l.client.Close(), l.server.Close() }

func (l *link) holds() *plan {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.held
}

func (l *link) hold(p *plan) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.held = p
}

func (w *wire) connect(client net.Conn) {
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, prepared: map[string]string{}, ended: make(chan struct{})}
	w.mutex.Lock()
	w.live[l] = true
	w.mutex.Unlock()
	go func() { defer close(l.ended); defer l.close(); l.answers() }()
	defer func() {
		if p := l.holds(); p != nil && p.after != nil {
			<-l.ended // the client left, but Postgres may still answer
		}
		l.close()
		w.mutex.Lock()
		delete(w.live, l)
		w.mutex.Unlock()
	}()
	// The first message, start-up, has no type byte.
	first, err := message(client, 0)
	if err != nil {
		return
	}
	for ; err == nil; first, err = message(client, 1) {
		if p := l.planFor(w, first); p != nil {
			if p.before != nil && !p.before() {
				return
			}
			l.hold(p)
		}
		if _, err := server.Write(first); err != nil {
			return
		}
	}
}

// planFor returns the plan for the statement that a message of the client runs: a Query,
// or a Bind of a statement that Parse prepared.
func (l *link) planFor(w *wire, m []byte) *plan {
	text := func(part int) string { return string(bytes.SplitN(m[5:], []byte{0}, 3)[part]) }
	switch m[0] {
	case 'Q':
		return w.take(text(0))
	case 'P':
		l.prepared[text(0)] = text(1)
	case 'B':
		return w.take(l.prepared[text(1)])
	}
	return nil
}

// answers forwards the server's messages. An answer that a plan waits for is kept until
// the server is ready for the next statement: only then is this one committed.
func (l *link) answers() {
	var kept []byte
	for {
		m, err := message(l.server, 1)
		if err != nil {
			return
		}
		p := l.holds()
		kept = append(kept, m...)
		if p != nil && p.after != nil {
			if m[0] != 'Z' {
				continue
			}
			if !p.after() {
				if p.partly {
					_, _ = l.client.Write(kept[:len(kept)-len(m)])
				}
				return
			}
		}
		if m[0] == 'Z' {
			l.hold(nil)
		}
		if _, err := l.client.Write(kept); err != nil {
			return
		}
		kept = kept[:0]
	}
}

// message reads one message whose length comes after lead bytes.
func message(from io.Reader, lead int) ([]byte, error) {
	m := make([]byte, lead+4, 512)
	if _, err := io.ReadFull(from, m); err != nil {
		return nil, err
	}
	rest := int(binary.BigEndian.Uint32(m[lead:])) - 4
	m = append(m, make([]byte, rest)...)
	_, err := io.ReadFull(from, m[lead+4:])
	return m, err
}
