//go:build conformance && linux

package conformance

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/miniserversystem/miniserver/test/kit"
)

// namespace is a network namespace with only a loopback device: like a pod's, whose
// programs listen on fixed ports of all interfaces.
type namespace struct{ work chan func() }

// newNamespace creates a namespace; it skips the test if that is not permitted.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n, made := &namespace{make(chan func())}, make(chan error)
	go func() {
		// The thread is never unlocked, so no other goroutine runs in this namespace. Nor
		// does it end: it may have started programs before, for other tests, which are
		// killed with the thread that started them.
		runtime.LockOSThread()
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err == nil {
			err = raiseLoopback()
		}
		made <- err
		for do := range n.work {
			do()
		}
	}()
	err := <-made
	if err != nil {
		t.Skipf("a network namespace needs root: %v", err)
	}
	return n
}

// raiseLoopback is "ip link set lo up".
func raiseLoopback() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	request := struct { // ifreq
		name  [16]byte
		flags uint16
		_     [22]byte
	}{name: [16]byte{'l', 'o'}, flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); failed != 0 {
		return failed
	}
	return nil
}

// do runs work on the thread in the namespace: sockets that it opens and programs that it
// starts are in it too.
func (n *namespace) do(work func()) {
	done := make(chan struct{})
	n.work <- func() {
		defer close(done)
		work()
	}
	<-done
}

func (n *namespace) dial(address string) (conn net.Conn, err error) {
	n.do(func() { conn, err = net.DialTimeout("tcp", address, time.Second) })
	return conn, err
}

// forward connects address in the namespace to whatever dial connects to.
func (n *namespace) forward(t testing.TB, address string, dial func() (net.Conn, error)) {
	t.Helper()
	var listener net.Listener
	var err error
	n.do(func() { listener, err = net.Listen("tcp", address) })
	kit.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := dial()
			if err != nil {
				_ = near.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
}
