package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
)

// The main job on Lambda: a grant comes in by the function URL of one process, and
// scheduled events alone carry it through three others to a notification.
func TestGrantIsNotifiedBySchedules(t *testing.T) {
	t.Parallel()
	s := setup(t)
	gateway := s.start()
	first := gateway.url(s.grant("k1", "u_1").url())
	if first.StatusCode != http.StatusOK || first.json(t)["status"] != "ACTIVE" || first.Headers["Etag"] != `"1"` {
		t.Fatalf("grant: %+v", first)
	}
	again := gateway.url(s.grant("k1", "u_1").url())
	if again.Body != first.Body || again.Headers["Idempotent-Replayed"] != "true" || first.Headers["Idempotent-Replayed"] != "" {
		t.Errorf("replayed: %+v, at first %+v", again, first)
	}
	for _, function := range []string{"relay", "notify", "deliver"} {
		p := s.start("FUNCTION=" + function)
		answer, body := p.invoke(tickEvent(t, "{}"), time.Minute)
		var report lease.Report
		if answer.failed || answer.contentType != "application/json" || json.Unmarshal(body, &report) != nil || report.Done != 1 || report.More {
			t.Fatalf("%s: failed=%v %s %s", function, answer.failed, answer.contentType, body)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1' AND status = 'SENT'`); n != 1 {
		t.Errorf("%d notifications SENT, want 1", n)
	}
}

// One process may hold all functions for the ticks, too: events name the function.
func TestOneProcessTicksAll(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start()
	if a := p.api(s.grant("k1", "u_1").api()); a.StatusCode != http.StatusOK {
		t.Fatalf("grant: %+v", a)
	}
	for _, detail := range []string{`{"function":"relay"}`, `"{\"function\":\"notify\"}"`, `{"function":"deliver"}`} {
		if answer, body := p.invoke(tickEvent(t, detail), time.Minute); answer.failed || !strings.Contains(string(body), `"done":1`) {
			t.Fatalf("%s: failed=%v %s", detail, answer.failed, body)
		}
	}
}

// An HTTP API's events and answers differ from a function URL's.
func TestHTTPAPI(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start()
	plain := s.grant("k1", "u_1")
	first := p.api(plain.api())
	if first.StatusCode != http.StatusOK || first.IsBase64Encoded || first.json(t)["version"] != 1.0 {
		t.Fatalf("grant: %+v", first)
	}
	encoded := plain
	encoded.body, encoded.encoded = base64.StdEncoding.EncodeToString([]byte(plain.body)), true
	for _, replayed := range []httpAnswer{p.api(encoded.api()), p.url(encoded.url())} {
		if replayed.Body != first.Body || replayed.Headers["Idempotent-Replayed"] != "true" {
			t.Errorf("the same in base64: %+v", replayed)
		}
	}
	list := p.api(request{
		method: http.MethodGet, path: "/v1/users/u%5F1/entitlements", query: "limit=1",
		headers: map[string]string{"authorization": "Bearer " + s.writer},
	}.api())
	if list.StatusCode != http.StatusOK || len(list.json(t)["entitlements"].([]any)) != 1 {
		t.Errorf("list: %+v", list)
	}
}

// A faulty request is answered with a problem, and never fails the invocation.
func TestProblems(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start()
	broken := s.grant("k1", "u_1")
	broken.body = `{"user_id":`
	large := s.grant("k2", "u_1")
	large.body = `{"user_id":"` + strings.Repeat("x", 64<<10) + `"}`
	large64 := large
	large64.body, large64.encoded = base64.StdEncoding.EncodeToString([]byte(large.body)), true
	no64 := s.grant("k3", "u_1")
	no64.encoded = true
	path := s.grant("k4", "u_1")
	path.path = "/v1/%zz"
	nobody := s.grant("k5", "u_1")
	nobody.headers = map[string]string{"idempotency-key": "k5"}
	for _, c := range []struct {
		name, code string
		status     int
		request    request
	}{
		{"broken JSON", "request_malformed", 400, broken},
		{"too large", "body_too_large", 413, large},
		{"too large, base64", "body_too_large", 413, large64},
		{"no base64", "request_malformed", 400, no64},
		{"broken escape", "url_invalid", 400, path},
		{"no token", "token_missing", 401, nobody},
		{"no route", "route_not_found", 404, request{method: http.MethodGet, path: "//v1/me"}},
	} {
		for kind, a := range map[string]httpAnswer{"url": p.url(c.request.url()), "api": p.api(c.request.api())} {
			if a.StatusCode != c.status || a.Headers["Content-Type"] != "application/problem+json" || a.json(t)["code"] != c.code {
				t.Errorf("%s by %s: %+v", c.name, kind, a)
			}
		}
	}
	if n := s.count(`SELECT count(*) FROM entitlement.entitlements`); n != 0 {
		t.Errorf("%d entitlements, want none", n)
	}
}
