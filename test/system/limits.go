package system

import (
	"net/http"
	"strings"
	"testing"
)

// Flood repeats ask until it is answered 429, and returns that answer.
func Flood(t testing.TB, ask func() Answer) Answer {
	t.Helper()
	for range 100 {
		if a := ask(); a.Status == http.StatusTooManyRequests {
			return a
		}
	}
	t.Fatal("none of 100 requests was answered 429")
	return Answer{}
}

// Alone counts how often limits became each process's own, or shared again: on a busy
// machine Redis may answer too late for them. Each change begins another bucket.
func (s *System) Alone() int {
	log := s.Log.String()
	return strings.Count(log, "limits are each process's own") + strings.Count(log, "limits are shared again")
}

// Shared runs do, and again if limits were not shared all the time.
func (s *System) Shared(do func()) {
	for range 5 {
		before := s.Alone()
		if do(); s.Alone() == before {
			return
		}
	}
	s.T.Log("limits were not shared in any of five runs: Redis answered too late")
}
