package stream_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/system"
)

// Gateway and functions as processes of their own, for longer than any timeout of
// their servers: the stream goes on, and still tells at once.
func TestStreamAcrossProcesses(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes 45 s")
	}
	s, people := system.StartWithPeople(t)
	s.Apart()
	alice := people.Token(t, map[string]any{"sub": "alice", "exp": time.Now().Add(10 * time.Minute).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
	s.Writer = people.Token(t, map[string]any{"exp": time.Now().Add(10 * time.Minute).Unix()})
	user := s.UserID(alice)
	f := s.Follow(alice)
	began := time.Now()
	var took []time.Duration
	for n := 0; time.Since(began) < 45*time.Second; n++ {
		system.WantStatus(t, s.Grant(fmt.Sprint("k", n), user, system.SKU(n)), http.StatusOK)
		answered := time.Now()
		took = append(took, f.Until(n + 1)[n].At.Sub(answered))
		// Quiet for longer than a look, once; the clock is what this test is about.
		pause := 3 * time.Second
		if n == 1 {
			pause = 2 * system.LookEvery
		}
		select {
		case <-f.Ended:
			t.Fatalf("the stream ended after %s: %v", time.Since(began), f.End)
		case <-time.After(pause):
		}
	}
	slices.Sort(took)
	t.Logf("from a grant's answer to the stream: median %s, most %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %s", median)
	}
	if e := f.Got(); len(e) != len(idsOf(e)) {
		t.Errorf("%d events of %d notifications", len(e), len(idsOf(e)))
	}
}
