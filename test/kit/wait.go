package kit

import (
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	// Patience is how long a test waits for what must happen: far longer than it takes,
	// so that no test fails because the machine is busy.
	Patience = time.Minute
	poll     = 5 * time.Millisecond
)

// Eventually waits until ok, and fails the test if that takes longer than Patience. Call
// it on the test's own goroutine.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Patience, what, ok)
}

// Within is Eventually with a bound of its own, which the test is about.
func Within(t testing.TB, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	if !soon(bound, ok) {
		t.Fatalf("not within %s: %s", bound, what)
	}
}

// Soon waits until ok, and reports whether it was within Patience. It may be called on
// any goroutine.
func Soon(ok func() bool) bool { return soon(Patience, ok) }

func soon(bound time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(bound); !ok(); Pause(poll) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// Pause is for the pace of a load, a part that is slow on purpose, or the rest of a
// lifetime that a test is about. It proves nothing about what others did meanwhile: wait
// for that with Eventually.
func Pause(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the one place

// Must fails the test if err is one. Call it on the test's own goroutine.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// AwaitPort waits until no program has the port of a URL, where a server was that starts
// again: a child of a killed Postgres may hold it a moment longer, and Postgres would take
// another one.
func AwaitPort(address string, within time.Duration) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(within); ; Pause(poll) {
		if free, err := proc.FreePort(port); err != nil || free == port {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("another program has %s, where a server was", u.Host)
		}
	}
}
