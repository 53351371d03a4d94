package system

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/kit"
)

// TryTick runs a function's tick that may fail, and returns its status.
func (s *System) TryTick(function string) int {
	s.T.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+function+tick.Path, http.NoBody)
	kit.Must(s.T, err)
	response, err := s.Runtime.Invoke.RoundTrip(request)
	kit.Must(s.T, err)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TellAll drains what was granted into the inboxes.
func (s *System) TellAll() {
	s.T.Helper()
	for _, function := range []string{"relay", "notify", "deliver"} {
		s.Tick(function)
	}
}

// Tick runs a function's tick and returns its report.
func (s *System) Tick(function string) lease.Report {
	s.T.Helper()
	report, answered := s.Try(function)
	if answered != "" {
		s.T.Fatalf("tick of %s: %s", function, answered)
	}
	return report
}

// Try is tick for one that may fail; then it says what it answered.
func (s *System) Try(function string) (report lease.Report, answered string) {
	s.T.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+function+tick.Path, http.NoBody)
	kit.Must(s.T, err)
	response, err := s.Runtime.Invoke.RoundTrip(request)
	kit.Must(s.T, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return report, fmt.Sprintf("%d %s", response.StatusCode, body)
	}
	kit.Must(s.T, json.NewDecoder(response.Body).Decode(&report))
	return report, ""
}
