package kit

import (
	"net"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Listen listens on a free port on loopback.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := proc.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
