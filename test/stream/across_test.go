package stream_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/system"
)

// The gateway and the functions are separate processes, and their servers' timeouts pass
// several times: the stream stays open and still delivers at once. Ticks are for the wake
// that a busy machine loses between processes.
func TestStreamAcrossProcesses(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t)
	s.Apart()
	s.Schedule()
	alice := people.Token(t, map[string]any{"sub": "alice", "exp": time.Now().Add(10 * time.Minute).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
	s.Writer = people.Token(t, map[string]any{"exp": time.Now().Add(10 * time.Minute).Unix()})
	user := s.UserID(alice)
	f := s.Follow(alice)
	const times, longest = 4, 45 * time.Second // longer than any timeout of process.Serve but the idle one
	var took []time.Duration
	for n := range times {
		system.WantStatus(t, s.Grant(fmt.Sprint("k", n), user, system.SKU(n)), http.StatusOK)
		answered := time.Now()
		took = append(took, f.Until(n + 1)[n].At.Sub(answered))
		s.Age(longest)
	}
	if !f.Open() {
		t.Errorf("the stream ended: %v", f.End)
	}
	slices.Sort(took)
	t.Logf("from a grant's answer to the stream: median %s, most %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %s, want a second at most", median)
	}
	if e := f.Got(); len(e) != len(idsOf(e)) {
		t.Errorf("%d events for %d notifications", len(e), len(idsOf(e)))
	}
}
