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
	if preferred, err := FreePort(first); err != nil || preferred != first {
		t.Errorf("preferred %d, got %d, %v", first, preferred, err)
	}
	l, err := net.Listen("tcp", Address(first))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if other, err := FreePort(first); err != nil || other == first {
		t.Errorf("got the taken port %d, %v", other, err)
	}
}
