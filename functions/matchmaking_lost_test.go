package functions_test

import (
	"testing"
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
	s, people := withPlayers(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	client := s.queueClient()
	defer client.Close()
	arrived := s.paired(people, client, "alice", "bob")
	s.tick("announce")
	if report := s.tick("reconcile"); report.Retried != 0 {
		t.Errorf("what waits for its consumer is not lost: %+v", report)
	}
	s.tick("notify")
	lost := s.paired(people, client, "carol", "dave")
	s.tick("announce")
	s.loseMatches(t, everything)
	if report := s.tick("notify"); report.Claimed != 0 {
		t.Fatalf("they are gone, and notify got %+v", report)
	}
	s.untold(lost)
	if report := s.tick("announce"); report.Claimed != 0 {
		t.Errorf("nobody knows yet, and announce did %+v", report)
	}
	if report := s.tick("reconcile"); report.Retried != 1 || report.Done != 1 {
		t.Errorf("reconcile: %+v", report)
	}
	if n := waitingEntries(client); n != 1 {
		t.Errorf("%d entries wait", n)
	}
	s.matchAll()
	s.wantTold(arrived)
	s.wantTold(lost)
	if report := s.tick("reconcile"); report.Retried != 0 || report.Done != 1 {
		t.Errorf("reconcile again: %+v", report)
	}
	if n := waitingEntries(client); n != 0 {
		t.Errorf("%d entries wait", n)
	}
	s.matchAll()
	s.wantTold(arrived)
	s.wantTold(lost)
}
