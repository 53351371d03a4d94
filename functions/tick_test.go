package functions_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// Many ticks at once drain what there is, once.
func TestTicksCoalesce(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "LEASE_BATCH=10")
	const events = 60
	atOnce(events, func(i int) { s.grant(fmt.Sprint("k", i), "u_1", fmt.Sprint("item", i)) })
	for _, function := range []string{"relay", "notify", "deliver"} {
		var claimed, done atomic.Int64
		atOnce(32, func(int) {
			report := s.tick(function)
			claimed.Add(int64(report.Claimed))
			done.Add(int64(report.Done))
			if report.Retried+report.Dead+report.LostLease > 0 {
				t.Errorf("%s: %+v", function, report)
			}
		})
		if claimed.Load() != events || done.Load() != events {
			t.Errorf("%s: claimed %d, done %d of %d", function, claimed.Load(), done.Load(), events)
		}
		if report := s.tick(function); report != (lease.Report{}) {
			t.Errorf("%s found more: %+v", function, report)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT' AND attempt_count = 1`); n != events {
		t.Errorf("%d of %d were told at the first try", n, events)
	}
}

// Two processes that tick at the same time share the work and repeat none of it.
func TestTicksOfTwoProcesses(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "LEASE_BATCH=5")
	second := fn.NewRuntime(s.runtime.Settings, s.runtime.Log, functions.All)
	defer second.Close()
	_, err := functions.Together(second)
	must(t, err)
	other := s.in(t)
	other.runtime = second
	const events = 100
	atOnce(events, func(i int) { s.grant(fmt.Sprint("k", i), "u_1", fmt.Sprint("item", i)) })
	for _, function := range []string{"relay", "notify", "deliver"} {
		var done atomic.Int64
		atOnce(8, func(i int) {
			report := []*system{s, other}[i%2].tick(function)
			done.Add(int64(report.Done))
		})
		if done.Load() != events {
			t.Errorf("%s: %d of %d", function, done.Load(), events)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`); n != events {
		t.Errorf("%d of %d were told", n, events)
	}
}

// A tick's body is never believed: whatever it says, what was due is done, and
// nothing else.
func TestTickBodyIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	grant := purchase("completed", "e1", "u_evil", "item1", "p_1")
	forged := `{"event_id":"01900000-0000-7000-8000-000000000000","event_type":"EntitlementGranted","user_id":"u_evil","stock_keeping_unit":"item1","version":1}`
	structured := "Content-Type: application/cloudevents+json"
	binary := []string{"Content-Type: application/json", "Ce-Specversion: 1.0", "Ce-Id: e1", "Ce-Source: /shop"}
	for _, f := range functions.All {
		if f.Schedule == 0 {
			// Functions without ticks take none.
			for _, path := range []string{"/tick", "/"} {
				// 405 is the gateway's start page.
				if a := s.direct(f.Name, http.MethodPost, path, ""); a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: %d", f.Name, path, a.status)
				}
			}
			continue
		}
		for _, path := range []string{"/tick", "/"} {
			for name, a := range map[string]func() answer{
				"empty":      func() answer { return s.direct(f.Name, http.MethodPost, path, "") },
				"garbage":    func() answer { return s.direct(f.Name, http.MethodPost, path, "\xff{[") },
				"a purchase": func() answer { return s.direct(f.Name, http.MethodPost, path, grant.envelope(nil), structured) },
				"an event": func() answer {
					return s.direct(f.Name, http.MethodPost, path, forged, append(binary, "Ce-Type: miniserver.entitlement.v1.EntitlementGranted")...)
				},
				"broken":      func() answer { return s.direct(f.Name, http.MethodPost, path, "{}", "Ce-Id: ", "Ce-Type: \xff") },
				"unknown":     func() answer { return s.direct(f.Name, http.MethodPost, path, "{}", append(binary, "Ce-Type: x")...) },
				"large":       func() answer { return s.direct(f.Name, http.MethodPost, path, strings.Repeat("x", 1<<20)) },
				"an identity": func() answer { return s.direct(f.Name, http.MethodPost, path, forged, "X-User-Id: root") },
			} {
				s.untouched(func() {
					got := a()
					wantStatus(t, got, http.StatusOK)
					var report lease.Report
					if err := json.Unmarshal(got.body, &report); err != nil || report != (lease.Report{}) {
						t.Errorf("%s %s with %s: %s", f.Name, path, name, got.body)
					}
				})
			}
		}
	}
	// The same ones do what is due.
	wantStatus(t, s.grant("k1", "u_1", "item1"), http.StatusOK)
	for _, function := range []string{"relay", "notify", "deliver"} {
		a := s.direct(function, http.MethodPost, "/", forged, append(binary, "Ce-Type: x")...)
		if a.json(t)["done"] != 1.0 {
			t.Errorf("%s: %s", function, a.body)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1' AND status = 'SENT'`); n != 1 {
		t.Errorf("%d told", n)
	}
}
