package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// TryTick runs a function's tick, which may fail, and returns its status.
func (s *System) TryTick(function string) int {
	s.T.Helper()
	_, status, _ := s.tick(function)
	return status
}

// DeliverAll relays, notifies and delivers everything that is pending.
func (s *System) DeliverAll() {
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
		s.T.Errorf("the tick of %s answered %s, want 200", function, answered)
	}
	return report
}

// Try is Tick for a tick that may fail; answered is then its status and body.
func (s *System) Try(function string) (report lease.Report, answered string) {
	s.T.Helper()
	report, status, body := s.tick(function)
	if status != http.StatusOK {
		return report, fmt.Sprintf("%d %s", status, body)
	}
	return report, ""
}

func (s *System) tick(function string) (report lease.Report, status int, body []byte) {
	s.T.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+function+tick.Path, http.NoBody)
	if err != nil {
		s.T.Error(err)
		return report, 0, nil
	}
	response, err := s.invoke(request)
	if err != nil {
		return report, 0, []byte(err.Error())
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &report)
	}
	if err != nil {
		s.T.Errorf("the tick of %s answered %q: %v", function, body, err)
	}
	return report, response.StatusCode, body
}

// Schedule ticks the functions until the test ends, as a deployed system does: on a busy
// machine a wake may be lost, which costs latency and no event.
func (s *System) Schedule() {
	s.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var schedule sync.WaitGroup
	schedule.Go(func() { s.Runtime.RunSchedule(ctx) })
	s.T.Cleanup(func() {
		cancel()
		schedule.Wait()
	})
}
