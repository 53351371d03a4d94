package main

import (
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// ends passes connections on to Postgres and remembers how each client ended.
type ends struct {
	mutex sync.Mutex
	tails []string
	open  sync.WaitGroup
}

// terminate is the message of a Postgres client that disconnects in order.
const terminate = "X\x00\x00\x00\x04"

// through returns the database's URL by way of e.
func (e *ends) through(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	kit.Must(t, err)
	listener, target := kit.Listen(t), u.Host
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			e.open.Go(func() { e.pass(client, target) })
		}
	}()
	u.Host = listener.Addr().String()
	return u.String()
}

func (e *ends) pass(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	var tail tail
	_, _ = io.Copy(io.MultiWriter(server, &tail), client)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.tails = append(e.tails, string(tail))
}

// tail keeps the last bytes that were written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	all := append(*t, p...)
	*t = slices.Clone(all[max(0, len(all)-len(terminate)):])
	return len(p), nil
}

// Lambda sends SIGTERM to a process that registered an extension: the process disconnects
// from its stores in order and exits with 0.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var e ends
	p := s.start("FUNCTION=relay", "DATABASE_URL="+e.through(t, s.environment["DATABASE_URL"]))
	if answer, body := p.invoke(tickEvent(t, "{}"), time.Minute); answer.failed {
		t.Fatalf("tick: %s", body)
	}
	select {
	case <-p.registered:
	default:
		t.Fatal("it did not ask Lambda for SIGTERM")
	}
	began := time.Now()
	kit.Must(t, p.Process.Signal(syscall.SIGTERM))
	if err := p.wantEnd(5 * time.Second); err != nil {
		t.Errorf("it ended with %v", err)
	}
	t.Logf("it took %s; Lambda kills after 500ms", time.Since(began))
	e.open.Wait()
	if len(e.tails) == 0 {
		t.Error("it had no connection to close")
	}
	for _, tail := range e.tails {
		if tail != terminate {
			t.Errorf("a connection ended with %q", tail)
		}
	}
}
