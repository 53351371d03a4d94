package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
)

// A request is done once, and its replay is byte for byte the same.
func (s *scene) request() string {
	first := s.send(s.grant("request", "u_request", "item1"))
	first.want(s.t, http.StatusOK)
	if first.json(s.t)["status"] != "ACTIVE" || first.header.Get("Idempotent-Replayed") != "" {
		s.t.Errorf("the grant is answered %v %s, want ACTIVE and no replay", first.header, first.body)
	}
	again := s.send(s.grant("request", "u_request", "item1"))
	again.want(s.t, http.StatusOK)
	if !bytes.Equal(again.body, first.body) || again.header.Get("Idempotent-Replayed") != "true" {
		s.t.Errorf("the replay is answered %v %q, the first was %q", again.header, again.body, first.body)
	}
	if n := s.count(`SELECT version FROM entitlement.entitlements WHERE user_id = 'u_request'`); n != 1 {
		s.t.Errorf("version %d", n)
	}
	return "200, same bytes"
}

// An invalid request is answered with a problem.
func (s *scene) refused() string {
	broken := s.ask(http.MethodPost, grantsPath, s.writer, `{"user_id":`, "Idempotency-Key: refused")
	s.send(broken).wantProblem(s.t, http.StatusBadRequest, "request_malformed")
	lacking := s.ask(http.MethodPost, grantsPath, s.writer, `{"user_id":"u_refused"}`, "Idempotency-Key: refused")
	s.send(lacking).wantProblem(s.t, http.StatusUnprocessableEntity, "request_invalid")
	s.send(s.ask(http.MethodPost, grantsPath, "", changeBody("u_refused", "item1", "p"), "Idempotency-Key: refused")).
		wantProblem(s.t, http.StatusUnauthorized, "token_missing")
	s.send(s.ask(http.MethodPost, grantsPath, s.writer, changeBody("u_refused", "item1", "p"), "Content-Type: text/plain", "Idempotency-Key: refused")).
		wantProblem(s.t, http.StatusUnsupportedMediaType, "content_type_unsupported")
	if n := s.count(`SELECT count(*) FROM entitlement.entitlements WHERE user_id = 'u_refused'`); n != 0 {
		s.t.Errorf("the refused request left %d entitlements", n)
	}
	return "4xx problems"
}

// An unknown path is answered with a problem too, and internal paths are unknown.
func (s *scene) unknownPath() string {
	for _, path := range []string{"/nothing", "/v1/entitlements/grants/", tick.Path} {
		s.send(s.ask(http.MethodPost, path, s.writer, "{}")).wantProblem(s.t, http.StatusNotFound, "route_not_found")
	}
	a := s.send(s.ask(http.MethodDelete, grantsPath, s.writer, ""))
	a.wantProblem(s.t, http.StatusMethodNotAllowed, "method_not_allowed")
	if allow := a.header.Get("Allow"); allow != http.MethodPost {
		s.t.Errorf("Allow is %q, want POST", allow)
	}
	return "404, 405"
}

// An unclean path is refused, not redirected: clients would send their token a second
// time, to wherever the redirect leads.
func (s *scene) uncleanPath() string {
	for _, path := range []string{"//v1/me", "/v1//me", "/v1/x/../me", "/v1/./me"} {
		s.send(s.ask(http.MethodPost, path, s.writer, "")).wantProblem(s.t, http.StatusNotFound, "route_not_found")
	}
	return "404"
}

// Path and query arrive as the client sent them.
func (s *scene) path() string {
	const user, escaped = "u/path %x", "u%2Fpath%20%25x"
	for _, item := range []string{"item1", "item2"} {
		s.send(s.grant("path-"+item, user, item)).want(s.t, http.StatusOK)
	}
	first := s.send(s.ask(http.MethodGet, "/v1/users/"+escaped+"/entitlements?limit=1", s.writer, ""))
	first.want(s.t, http.StatusOK)
	page := first.json(s.t)
	if page["user_id"] != user || len(page["entitlements"].([]any)) != 1 {
		s.t.Fatalf("the first page is %s", first.body)
	}
	cursor, _ := page["next_cursor"].(string)
	rest := s.send(s.ask(http.MethodGet, "/v1/users/"+escaped+"/entitlements?limit=1&cursor="+cursor, s.writer, ""))
	rest.want(s.t, http.StatusOK)
	if !strings.Contains(string(rest.body), `"item2"`) {
		s.t.Errorf("the second page is %s, want item2", rest.body)
	}
	s.send(s.ask(http.MethodGet, "/v1/users/"+escaped+"/entitlements?limit=1&limit=2", s.writer, "")).
		wantProblem(s.t, http.StatusUnprocessableEntity, "request_invalid")
	return "kept"
}

// Requests and answers without a body arrive.
func (s *scene) emptyBodies() string {
	none := s.ask(http.MethodPost, grantsPath, s.writer, "", "Content-Type: application/json", "Idempotency-Key: empty")
	none.Body, none.ContentLength = http.NoBody, 0
	s.send(none).wantProblem(s.t, http.StatusBadRequest, "request_malformed")
	me := s.ask(http.MethodPost, "/v1/me", s.writer, "")
	me.Body, me.ContentLength = http.NoBody, 0
	a := s.send(me)
	a.want(s.t, http.StatusOK)
	if user, _ := a.json(s.t)["user_id"].(string); !strings.HasPrefix(user, "u_") {
		s.t.Errorf("/v1/me is answered %s, want a user id", a.body)
	}
	out := s.send(s.ask(http.MethodPost, "/logout", "", "", "X-CSRF: 1"))
	if out.want(s.t, http.StatusNoContent); len(out.body) != 0 {
		s.t.Errorf("204 is answered with the body %q", out.body)
	}
	return "400, 200, 204"
}

// 64 KiB are accepted, one byte more is not, with and without Content-Length.
func (s *scene) tooLarge() string {
	sized := func(size int) string {
		const around = `{"user_id":"u_large","x":""}`
		return strings.Replace(around, `"x":""`, `"x":"`+strings.Repeat("x", size-len(around))+`"`, 1)
	}
	fits := s.send(s.ask(http.MethodPost, grantsPath, s.writer, sized(fn.MaxBodyBytes), "Idempotency-Key: large"))
	fits.wantProblem(s.t, http.StatusUnprocessableEntity, "request_invalid")
	for _, length := range []int64{fn.MaxBodyBytes + 1, -1} {
		large := s.ask(http.MethodPost, grantsPath, s.writer, sized(fn.MaxBodyBytes+1), "Idempotency-Key: large")
		large.ContentLength = length
		s.send(large).wantProblem(s.t, http.StatusRequestEntityTooLarge, "body_too_large")
	}
	return fmt.Sprintf("413 above %d KiB", fn.MaxBodyBytes>>10)
}
