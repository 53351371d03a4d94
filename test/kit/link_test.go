package kit_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// A link is cut and mended at the same address, hangs without losing data, loses an answer
// with its connection, delays as much as set, and stops where a text is carried.
func TestLink(t *testing.T) {
	t.Parallel()
	echo := kit.Listen(t)
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	link, address := kit.Through(t, "tcp://"+echo.Addr().String())
	at, err := url.Parse(address)
	kit.Must(t, err)
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", at.Host)
		kit.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	answer := make([]byte, 1)
	ask := func(conn net.Conn) {
		t.Helper()
		_, err := conn.Write([]byte("x"))
		kit.Must(t, err)
		kit.Must(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
		_, err = io.ReadFull(conn, answer)
		kit.Must(t, err)
	}

	conn := dial()
	ask(conn)
	if n := link.Pieces.Load(); n != 1 {
		t.Errorf("%d pieces were sent, want 1", n)
	}
	link.Cut()
	if _, err := conn.Read(answer); err == nil {
		t.Error("a connection outlives the cut")
	}
	if refused, err := net.Dial("tcp", at.Host); err == nil {
		_ = refused.Close()
		t.Error("a link that is cut accepts connections")
	}
	link.Mend()
	conn = dial()
	ask(conn)

	link.Hang()
	_, err = conn.Write([]byte("x"))
	kit.Must(t, err)
	kit.Must(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if _, err := conn.Read(answer); err == nil {
		t.Error("a link that hangs carries something")
	}
	link.Mend()
	kit.Must(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
	_, err = io.ReadFull(conn, answer)
	kit.Must(t, err)

	link.Lose(1)
	_, err = conn.Write([]byte("x"))
	kit.Must(t, err)
	kit.Must(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
	if _, err := conn.Read(answer); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a lost answer's connection ends with %v, want it broken", err)
	}
	conn = dial()
	ask(conn)

	const slow = 20 * time.Millisecond
	link.Slow(slow)
	began := time.Now()
	ask(conn)
	if took := time.Since(began); took < 2*slow {
		t.Errorf("there and back took %s, want %s each way", took, slow)
	}
	link.Slow(0)

	other := dial()
	ask(other)
	met, _ := link.When("x", func() bool { ask(other); return true })
	_, err = conn.Write([]byte("yxz"))
	kit.Must(t, err)
	<-met
	kit.Must(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
	if _, err := conn.Read(answer); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection whose next answer is lost ends with %v, want it broken", err)
	}
	conn = dial()
	_, forget := link.When("never said", func() bool { t.Error("it was met"); return false })
	ask(conn)
	if !forget() {
		t.Error("what was never said was met")
	}
	carry := func() bool { return false }
	met, forget = link.When("x", carry)
	also, _ := link.When("x", carry)
	ask(conn)
	<-met
	<-also
	if forget() {
		t.Error("what was met waits")
	}
}
