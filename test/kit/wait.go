package kit

import (
	"testing"
	"time"
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
