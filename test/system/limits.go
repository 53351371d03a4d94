package system

import (
	"net/http"
	"strings"
	"testing"
)

// Flood asks until it is too much, and returns that answer.
func Flood(t testing.TB, ask func() Answer) Answer {
	t.Helper()
	for range 100 {
		if a := ask(); a.Status == http.StatusTooManyRequests {
			return a
		}
	}
	t.Fatal("100 requests, and none was too many")
	return Answer{}
}

// Alone is how often limits became each process's own, or shared again: on a busy
// machine Redis takes longer to answer than limits wait for it. Each time is another
// bucket.
func (s *System) Alone() int {
	log := s.Log.String()
	return strings.Count(log, "limits are each process's own") + strings.Count(log, "limits are shared again")
}

// Shared does what counts, and anew when limits were not shared all the time.
func (s *System) Shared(do func()) {
	for range 5 {
		before := s.Alone()
		if do(); s.Alone() == before {
			return
		}
	}
}
