package proc

import (
	"net"
	"testing"
)

func TestFreePort(t *testing.T) {
	t.Parallel()
	first, err := FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{first, second} {
		if port < firstPort || port >= endPort {
			t.Errorf("port %d is not in the range", port)
		}
	}
	if first == second {
		t.Errorf("got port %d twice", first)
	}
}

// TestFreePortPreferred asks for a free port by its number. Tests of other packages look
// for ports, too, and may hold that one at the moment: then it asks for another.
func TestFreePortPreferred(t *testing.T) {
	t.Parallel()
	for range bindAttempts {
		free, err := FreePort(0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FreePort(free)
		if err != nil {
			t.Fatal(err)
		}
		if got == free {
			return
		}
	}
	t.Errorf("%d free ports were preferred, and none was given", bindAttempts)
}

func TestFreePortTaken(t *testing.T) {
	t.Parallel()
	l, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	if port, err := FreePort(taken); err != nil || port == taken {
		t.Errorf("port %d is taken, got %d, %v", taken, port, err)
	}
}
