package proc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

const (
	// Loopback is where servers listen.
	Loopback = "127.0.0.1"

	// Free ports are looked for in [firstPort, endPort). Linux gives outgoing connections
	// ports from 32768 up: a server there would sometimes find its port taken by a
	// client.
	firstPort = 15000
	endPort   = 32768

	// bindAttempts is how often a port is bound, or a server started on another one,
	// after losing the race for one.
	bindAttempts = 5
)

// nextPort is where the search continues: at random per process, so that two processes
// starting at once rarely try the same port, then upwards, so that one process never
// offers a port twice in a row.
var nextPort atomic.Uint32

func init() { nextPort.Store(rand.Uint32N(endPort - firstPort)) }

// FreePort returns a TCP port on which nothing listens at 127.0.0.1: preferred if that is
// free, otherwise one between 15000 and 32767, never an ephemeral port. A preferred of 0
// means none. The port is not reserved: the caller must be ready to lose a race for it
// and ask again.
func FreePort(preferred int) (int, error) {
	if preferred > 0 && portFree(preferred) {
		return preferred, nil
	}
	for range endPort - firstPort {
		port := firstPort + int(nextPort.Add(1)%(endPort-firstPort))
		if portFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d on %s", firstPort, endPort-1, Loopback)
}

// Listen listens on a port of 127.0.0.1 that [FreePort] finds, preferred or another.
func Listen(preferred int) (listener net.Listener, err error) {
	for range bindAttempts { // somebody else may take the port in between
		var port int
		if port, err = FreePort(preferred); err != nil {
			return nil, err
		}
		if listener, err = net.Listen("tcp", Address(port)); err == nil {
			return listener, nil
		}
	}
	return nil, err
}

// portFree binds the port and does not listen: a process that is being started has copies
// of our open files for a moment, and a copy of a socket that listens would keep the port
// taken.
func portFree(port int) bool {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(socket) }()
	return syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) == nil &&
		syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}

// Address returns the address of a port on loopback.
func Address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }

// RememberedPort returns the port that OnFreePort noted in a file last time, or 0.
func RememberedPort(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || port <= 0 || port >= endPort {
		return 0
	}
	return port
}

func rememberPort(path string, port int) error {
	if path == "" {
		return nil
	}
	return os.WriteFile(path, []byte(strconv.Itoa(port)+"\n"), privateFile)
}

// OnFreePort calls start with free ports, the remembered or preferred one first, until it
// does not return ErrPortTaken, and notes the port in the file remember, unless that is
// "".
func OnFreePort(preferred int, remember string, start func(port int) error) (int, error) {
	if last := RememberedPort(remember); preferred == 0 {
		preferred = last
	}
	for attempt := 1; ; attempt++ {
		port, err := FreePort(preferred)
		if err != nil {
			return 0, err
		}
		// Before the start: a process that adopts the server must know its port.
		if err := rememberPort(remember, port); err != nil {
			return 0, err
		}
		if err = start(port); err == nil {
			return port, nil
		}
		if !errors.Is(err, ErrPortTaken) || attempt == bindAttempts {
			return 0, err
		}
		preferred = 0
	}
}
