package conformance

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// link is a way to a server, which is cut, carries, or hangs: then it takes
// connections and bytes, and nothing comes back.
type link struct {
	address string // of this side
	target  string

	mutex    sync.Mutex
	passing  sync.Cond // hanging has changed
	hanging  bool
	listener net.Listener
	open     []net.Conn
}

// linkTo returns a link that is cut, and address by way of it.
func linkTo(t testing.TB, address string) (*link, string) {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	// The port stays ours while we are cut: nobody else looks for one that is below
	// the ephemeral ones at random.
	listener := kit.Listen(t)
	l := &link{address: listener.Addr().String(), target: u.Host}
	l.passing.L = &l.mutex
	must(t, listener.Close())
	t.Cleanup(l.cut)
	u.Host = l.address
	return l, u.String()
}

func (l *link) cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
	for _, conn := range l.open {
		_ = conn.Close()
	}
	l.open, l.hanging = nil, false
	l.passing.Broadcast()
}

// hang makes the link carry nothing until resume.
func (l *link) hang() { l.set(true) }

func (l *link) resume() { l.set(false) }

func (l *link) set(hanging bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.hanging = hanging
	l.passing.Broadcast()
}

func (l *link) mend(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	must(t, err)
	l.mutex.Lock()
	l.listener = listener
	l.mutex.Unlock()
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.target)
			if err != nil {
				_ = near.Close()
				continue
			}
			if !l.keep(listener, near, far) {
				return
			}
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(held{pair[0], l}, pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
}

// keep remembers a connection for cut; false: the link was cut meanwhile.
func (l *link) keep(listener net.Listener, ends ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.listener == listener {
		l.open = append(l.open, ends...)
		return true
	}
	for _, end := range ends {
		_ = end.Close()
	}
	return false
}

// held writes when the link does not hang.
type held struct {
	io.Writer
	link *link
}

func (h held) Write(p []byte) (int, error) {
	h.link.mutex.Lock()
	for h.link.hanging {
		h.link.passing.Wait()
	}
	h.link.mutex.Unlock()
	return h.Writer.Write(p)
}
