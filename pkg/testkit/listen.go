package testkit

import (
	"net"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/devserver"
)

// Listen takes a free port on loopback.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := devserver.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
