package matchmaking_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// The broker loses its store, or messages, after matches were published and before they
// were consumed: the lost matches are published again, once, and those that had arrived
// are not.
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
		t.Errorf("reconcile republished what still waits for its consumer: %+v", report)
	}
	s.Tick("notify")
	lost := paired(s, people, client, "carol", "dave")
	s.Tick("announce")
	loseMatches(s, t, everything)
	if report := s.Tick("notify"); report.Claimed != 0 {
		t.Fatalf("the messages are gone, but notify claimed %+v", report)
	}
	wantNotNotified(s, lost)
	if report := s.Tick("announce"); report.Claimed != 0 {
		t.Errorf("before reconcile, announce claimed %+v", report)
	}
	if report := s.Tick("reconcile"); report.Retried != 1 || report.Done != 1 {
		t.Errorf("reconcile reports %+v, want one retried and one done", report)
	}
	if n := waitingEntries(client); n != 1 {
		t.Errorf("%d entries wait", n)
	}
	matchAll(s)
	wantNotified(s, arrived)
	wantNotified(s, lost)
	if report := s.Tick("reconcile"); report.Retried != 0 || report.Done != 1 {
		t.Errorf("reconcile again reports %+v, want one done", report)
	}
	if n := waitingEntries(client); n != 0 {
		t.Errorf("%d entries wait", n)
	}
	matchAll(s)
	wantNotified(s, arrived)
	wantNotified(s, lost)
}
