package matchmaking_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// The broker loses its store, or messages of it, after matches were published and
// before they were consumed: they are told again, once; those that had arrived are
// not.
func TestMatchesLostByTheBroker(t *testing.T) {
	t.Parallel()
	for name, everything := range map[string]bool{"the store": true, "messages": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLostMatches(t, everything)
		})
	}
}

func testLostMatches(t *testing.T, everything bool) {
	s, people := system.StartWithPeople(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	client := s.QueueClient()
	defer client.Close()
	arrived := paired(s, people, client, "alice", "bob")
	s.Tick("announce")
	if report := s.Tick("reconcile"); report.Retried != 0 {
		t.Errorf("what waits for its consumer is not lost: %+v", report)
	}
	s.Tick("notify")
	lost := paired(s, people, client, "carol", "dave")
	s.Tick("announce")
	loseMatches(s, t, everything)
	if report := s.Tick("notify"); report.Claimed != 0 {
		t.Fatalf("they are gone, and notify got %+v", report)
	}
	untold(s, lost)
	if report := s.Tick("announce"); report.Claimed != 0 {
		t.Errorf("nobody knows yet, and announce did %+v", report)
	}
	if report := s.Tick("reconcile"); report.Retried != 1 || report.Done != 1 {
		t.Errorf("reconcile: %+v", report)
	}
	if n := waitingEntries(client); n != 1 {
		t.Errorf("%d entries wait", n)
	}
	matchAll(s)
	wantTold(s, arrived)
	wantTold(s, lost)
	if report := s.Tick("reconcile"); report.Retried != 0 || report.Done != 1 {
		t.Errorf("reconcile again: %+v", report)
	}
	if n := waitingEntries(client); n != 0 {
		t.Errorf("%d entries wait", n)
	}
	matchAll(s)
	wantTold(s, arrived)
	wantTold(s, lost)
}
