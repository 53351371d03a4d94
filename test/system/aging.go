package system

import (
	"net"
	"sync"
	"time"
)

// Age moves all deadlines that the servers of BehindServe, Served and Apart have set on
// their connections, as if that much time had passed at once.
func (s *System) Age(by time.Duration) {
	for _, listener := range s.served {
		listener.mutex.Lock()
		for conn := range listener.open {
			conn.age(by)
		}
		listener.mutex.Unlock()
	}
}

// agingListener remembers its connections.
type agingListener struct {
	net.Listener
	mutex sync.Mutex
	open  map[*agingConn]bool
}

func (l *agingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	aging := &agingConn{Conn: conn, listener: l}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.open[aging] = true
	return aging, nil
}

// agingConn remembers the deadlines that were set on it.
type agingConn struct {
	net.Conn
	listener *agingListener

	mutex       sync.Mutex
	read, write time.Time
}

func (c *agingConn) age(by time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.read.IsZero() {
		c.read = c.read.Add(-by)
		_ = c.Conn.SetReadDeadline(c.read)
	}
	if !c.write.IsZero() {
		c.write = c.write.Add(-by)
		_ = c.Conn.SetWriteDeadline(c.write)
	}
}

func (c *agingConn) SetReadDeadline(at time.Time) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.read = at
	return c.Conn.SetReadDeadline(at)
}

func (c *agingConn) SetWriteDeadline(at time.Time) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.write = at
	return c.Conn.SetWriteDeadline(at)
}

func (c *agingConn) SetDeadline(at time.Time) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.read, c.write = at, at
	return c.Conn.SetDeadline(at)
}

func (c *agingConn) Close() error {
	c.listener.mutex.Lock()
	delete(c.listener.open, c)
	c.listener.mutex.Unlock()
	return c.Conn.Close()
}
