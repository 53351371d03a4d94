package kit

import (
	"bytes"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const linkBuffer = 32 << 10

// Link is a TCP proxy to a server, which a test cuts, hangs, slows down and mends. Its
// methods may be called on any goroutine.
type Link struct {
	// Pieces counts how often clients sent something: requests, if each waits for its
	// answer.
	Pieces atomic.Int64

	t      testing.TB
	target string

	mutex    sync.Mutex
	changed  sync.Cond // of hanging, cut and ended
	hanging  bool
	slow     time.Duration
	losing   int // answers
	awaited  []*awaited
	listener *net.TCPListener
	cut      bool
	cuts     int // how often it was
	ended    bool
	open     map[net.Conn]bool
}

// Through returns a link to address that carries, and address with the link's own host
// and port. It is cut when the test ends.
func Through(t testing.TB, address string) (*Link, string) {
	t.Helper()
	return through(t, address, Listen(t))
}

// ThroughAt is Through at a host and port that the test chooses.
func ThroughAt(t testing.TB, address, at string) (*Link, string) {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	Must(t, err)
	return through(t, address, listener)
}

func through(t testing.TB, address string, listener net.Listener) (*Link, string) {
	t.Helper()
	u, err := url.Parse(address)
	Must(t, err)
	l := &Link{t: t, target: u.Host, open: map[net.Conn]bool{}}
	l.changed.L = &l.mutex
	l.listener = listener.(*net.TCPListener)
	u.Host = l.listener.Addr().String()
	t.Cleanup(func() {
		l.Cut()
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.ended = true
		_ = l.listener.Close()
		l.changed.Broadcast()
	})
	go l.accept()
	return l, u.String()
}

// Cut breaks all connections, and refuses new ones until Mend.
func (l *Link) Cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.cut {
		l.cut = true
		l.cuts++
		l.control(func(fd int) error {
			// It keeps its port, which nobody else may bind meanwhile.
			return errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0), syscall.Shutdown(fd, syscall.SHUT_RD))
		})
	}
	for conn := range l.open {
		_ = conn.Close()
	}
	clear(l.open)
	l.hanging = false // no connection is left to hang
	l.changed.Broadcast()
}

// Hang makes the link accept connections and bytes, but carry nothing until Mend.
func (l *Link) Hang() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.hanging = true
}

// Slow delays everything that is carried, in both directions, until Mend.
func (l *Link) Slow(by time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.slow = by
}

// Lose breaks the connections on which the server sends something next, n of them, and
// what it sends is lost: what was asked for has happened, and nobody hears of it.
func (l *Link) Lose(n int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.losing = n
}

// awaited is what a test waits for.
type awaited struct {
	text []byte
	do   func() (lose bool)
	met  chan struct{}
}

// When calls do once, as soon as a piece that contains text is to be carried, in either
// direction, and carries the piece when do returns. If do returns true, what the server
// sends next on that connection is lost, and the connection breaks. Then met is closed.
// forget ends the waiting, and reports whether do has not been called, and will not be.
func (l *Link) When(text string, do func() (lose bool)) (met <-chan struct{}, forget func() bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	a := &awaited{[]byte(text), do, make(chan struct{})}
	l.awaited = append(l.awaited, a)
	return a.met, func() bool {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		n := slices.Index(l.awaited, a)
		if n >= 0 {
			l.awaited = slices.Delete(l.awaited, n, n+1)
		}
		return n >= 0
	}
}

// meet calls what waits for a piece, and reports whether the next answer is to be lost.
func (l *Link) meet(piece []byte) (lose bool) {
	var met []*awaited
	l.mutex.Lock()
	l.awaited = slices.DeleteFunc(l.awaited, func(a *awaited) bool {
		found := bytes.Contains(piece, a.text)
		if found {
			met = append(met, a)
		}
		return found
	})
	l.mutex.Unlock()
	for _, a := range met {
		lose = a.do() || lose
		close(a.met)
	}
	return lose
}

// Mend makes the link carry again, at the same address.
func (l *Link) Mend() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.hanging, l.slow, l.losing = false, 0, 0
	l.changed.Broadcast()
	if !l.cut {
		return
	}
	l.cut = false
	l.control(func(fd int) error {
		return errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), syscall.Listen(fd, syscall.SOMAXCONN))
	})
	l.changed.Broadcast()
}

// control calls do with the listening socket.
func (l *Link) control(do func(fd int) error) {
	raw, err := l.listener.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		l.t.Errorf("the link to %s: %v", l.target, err)
	}
}

func (l *Link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			if l.mended() {
				continue
			}
			return
		}
		l.mutex.Lock()
		cuts := l.cuts
		l.mutex.Unlock()
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		if l.keep(cuts, near, far) {
			lose := &atomic.Bool{}
			go l.carry(near, far, &l.Pieces, lose)
			go l.carry(far, near, nil, lose)
		}
	}
}

// mended waits while the link is cut, and reports whether it carries again.
func (l *Link) mended() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for l.cut && !l.ended {
		l.changed.Wait()
	}
	return !l.ended
}

// keep remembers the ends of a connection for Cut, and reports whether the link is still
// open.
func (l *Link) keep(cuts int, ends ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, end := range ends {
		if !l.cut && l.cuts == cuts {
			l.open[end] = true
		} else {
			_ = end.Close()
		}
	}
	return !l.cut && l.cuts == cuts
}

// carry copies until either end closes, and counts what it reads. lose says that the next
// answer on this connection is to be lost.
func (l *Link) carry(from, to net.Conn, pieces *atomic.Int64, lose *atomic.Bool) {
	defer l.forget(to)
	buffer := make([]byte, linkBuffer)
	for {
		n, err := from.Read(buffer)
		if pieces != nil && n > 0 {
			pieces.Add(1)
		}
		if l.meet(buffer[:n]) {
			lose.Store(true)
		}
		answer := pieces == nil && n > 0
		slow, lost := l.pass(answer)
		if slow > 0 {
			Pause(slow)
		}
		if lost || answer && lose.Load() {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// pass waits while the link hangs, and returns how slow it is, and whether what it carries
// is an answer to be lost.
func (l *Link) pass(answer bool) (slow time.Duration, lost bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for l.hanging {
		l.changed.Wait()
	}
	if lost = answer && l.losing > 0; lost {
		l.losing--
	}
	return l.slow, lost
}

func (l *Link) forget(end net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	_ = end.Close()
	delete(l.open, end)
}
