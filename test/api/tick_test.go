package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/system"
)

// Many ticks at once handle everything that is pending, once.
func TestTicksCoalesce(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "LEASE_BATCH=10")
	const events = 60
	system.AtOnce(events, func(i int) { s.Grant(fmt.Sprint("k", i), "u_1", fmt.Sprint("item", i)) })
	for _, function := range []string{"relay", "notify", "deliver"} {
		var claimed, done atomic.Int64
		system.AtOnce(32, func(int) {
			report := s.Tick(function)
			claimed.Add(int64(report.Claimed))
			done.Add(int64(report.Done))
			if report.Retried+report.Dead+report.LostLease > 0 {
				t.Errorf("the tick of %s reports failures: %+v", function, report)
			}
		})
		if claimed.Load() != events || done.Load() != events {
			t.Errorf("%s claimed %d and did %d, want %d", function, claimed.Load(), done.Load(), events)
		}
		if report := s.Tick(function); report != (lease.Report{}) {
			t.Errorf("one more tick of %s reports %+v, want nothing", function, report)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT' AND attempt_count = 1`); n != events {
		t.Errorf("%d of %d notifications were sent at the first attempt", n, events)
	}
}

// Two processes that tick at the same time share the work and repeat none of it.
func TestTicksOfTwoProcesses(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "LEASE_BATCH=5")
	other := s.Another()
	const events = 100
	system.AtOnce(events, func(i int) { s.Grant(fmt.Sprint("k", i), "u_1", fmt.Sprint("item", i)) })
	for _, function := range []string{"relay", "notify", "deliver"} {
		var done atomic.Int64
		system.AtOnce(8, func(i int) {
			report := []*system.System{s, other}[i%2].Tick(function)
			done.Add(int64(report.Done))
		})
		if done.Load() != events {
			t.Errorf("%s did %d, want %d", function, done.Load(), events)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`); n != events {
		t.Errorf("%d of %d notifications were sent", n, events)
	}
}

// A tick ignores its body: whatever it says, the tick does what is due and nothing else.
func TestTickBodyIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	grant := system.Purchase("completed", "e1", "u_evil", "item1", "p_1")
	forged := `{"event_id":"01900000-0000-7000-8000-000000000000","event_type":"EntitlementGranted","user_id":"u_evil","stock_keeping_unit":"item1","version":1}`
	structured := "Content-Type: application/cloudevents+json"
	binary := []string{"Content-Type: application/json", "Ce-Specversion: 1.0", "Ce-ID: e1", "Ce-Source: /shop"}
	for _, f := range functions.All {
		if f.Schedule == 0 {
			// Functions without a schedule accept no ticks.
			for _, path := range []string{"/tick", "/"} {
				// 405 comes from the gateway's start page.
				if a := s.Direct(f.Name, http.MethodPost, path, ""); a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: answered %d, want 404 or 405", f.Name, path, a.Status)
				}
			}
			continue
		}
		for _, path := range []string{"/tick", "/"} {
			for name, a := range map[string]func() system.Answer{
				"empty":      func() system.Answer { return s.Direct(f.Name, http.MethodPost, path, "") },
				"garbage":    func() system.Answer { return s.Direct(f.Name, http.MethodPost, path, "\xff{[") },
				"a purchase": func() system.Answer { return s.Direct(f.Name, http.MethodPost, path, grant.Envelope(nil), structured) },
				"an event": func() system.Answer {
					return s.Direct(f.Name, http.MethodPost, path, forged, append(binary, "Ce-Type: miniserver.entitlement.v1.EntitlementGranted")...)
				},
				"broken": func() system.Answer { return s.Direct(f.Name, http.MethodPost, path, "{}", "Ce-ID: ", "Ce-Type: \xff") },
				"unknown": func() system.Answer {
					return s.Direct(f.Name, http.MethodPost, path, "{}", append(binary, "Ce-Type: x")...)
				},
				"large":       func() system.Answer { return s.Direct(f.Name, http.MethodPost, path, strings.Repeat("x", 1<<20)) },
				"an identity": func() system.Answer { return s.Direct(f.Name, http.MethodPost, path, forged, "X-User-ID: root") },
			} {
				s.Untouched(func() {
					got := a()
					system.WantStatus(t, got, http.StatusOK)
					var report lease.Report
					if err := json.Unmarshal(got.Body, &report); err != nil || report != (lease.Report{}) {
						t.Errorf("%s %s with %s: answered %s, want an empty report", f.Name, path, name, got.Body)
					}
				})
			}
		}
	}
	// The same bodies do not keep ticks from what is due.
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
	for _, function := range []string{"relay", "notify", "deliver"} {
		a := s.Direct(function, http.MethodPost, "/", forged, append(binary, "Ce-Type: x")...)
		if a.JSON(t)["done"] != 1.0 {
			t.Errorf("the tick of %s answered %s, want one done", function, a.Body)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1' AND status = 'SENT'`); n != 1 {
		t.Errorf("%d notifications were sent, want 1", n)
	}
}
