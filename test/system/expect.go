package system

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/problem"
)

// In returns a copy of the system that reports its failures to a subtest.
func (s *System) In(t testing.TB) *System {
	copied := *s
	copied.T = t
	return &copied
}

// WantProblem fails unless a is a complete problem with this status, and with this code
// unless code is "".
func WantProblem(t testing.TB, a Answer, status int, code string) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	if media := a.Header.Get("Content-Type"); media != problem.ContentType {
		t.Errorf("wrong Content-Type %q", media)
	}
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.Unmarshal(a.Body, &p); err != nil {
		t.Fatalf("the problem is not JSON: %q", a.Body)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" || p.Code == "" || p.Status != status {
		t.Errorf("the problem lacks a field, or its status is wrong: %s", a.Body)
	}
	if code != "" && p.Code != code {
		t.Errorf("code %q, want %q: %s", p.Code, code, a.Body)
	}
	if once := a.Header.Values("Cache-Control"); len(once) != 1 || once[0] != "no-store" {
		t.Errorf("Cache-Control %q, want no-store once", once)
	}
}

// WantStatus fails unless a has this status.
func WantStatus(t testing.TB, a Answer, status int) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
}

// WantReplay fails unless second repeats first and is marked as a replay.
func WantReplay(t testing.TB, first, second Answer) {
	t.Helper()
	if second.Status != first.Status || string(second.Body) != string(first.Body) || second.Header.Get("ETag") != first.Header.Get("ETag") {
		t.Fatalf("not replayed:\nfirst  %d %s %s\nsecond %d %s %s", first.Status, first.Header.Get("ETag"), first.Body, second.Status, second.Header.Get("ETag"), second.Body)
	}
	if second.Header.Get("Idempotent-Replayed") != "true" {
		t.Fatal("Idempotent-Replayed is missing")
	}
	if media := second.Header.Get("Content-Type"); media != first.Header.Get("Content-Type") {
		t.Errorf("wrong Content-Type %q", media)
	}
}

// WantOverview wants an overview that has all parts except those in away, each of which
// failed with its code.
func WantOverview(t testing.TB, a Answer, away map[string]string) map[string]any {
	t.Helper()
	WantStatus(t, a, http.StatusOK)
	o := a.JSON(t)
	var names []string
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"account", "entitlements", "errors", "matchmaking"}; !slices.Equal(names, want) {
		t.Errorf("the overview has %q, want %q", names, want)
	}
	errors, _ := o["errors"].(map[string]any)
	if errors == nil || len(errors) != len(away) {
		t.Errorf("errors %v, want %v", o["errors"], away)
	}
	for _, name := range []string{"account", "entitlements", "matchmaking"} {
		code, isAway := away[name]
		if isAway != (o[name] == nil) {
			t.Errorf("%s is %v; is it expected to be away: %t", name, o[name], isAway)
		}
		if !isAway {
			continue
		}
		why, _ := errors[name].(map[string]any)
		if detail, _ := why["detail"].(string); why["code"] != code || detail == "" || strings.Contains(detail, "planted") {
			t.Errorf("%s is away because of %v, want the code %s", name, why, code)
		}
	}
	return o
}
