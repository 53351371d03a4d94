package testkit

import (
	"net"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/devserver"
)

// Listen takes a free port on loopback.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	for tries := 5; ; tries-- { // somebody else may take the port in between
		port, err := devserver.FreePort(0)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			return listener
		}
		if tries == 0 {
			t.Fatal(err)
		}
	}
}
