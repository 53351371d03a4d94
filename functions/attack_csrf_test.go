package functions_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// write is a request that changes something.
type write struct {
	fn.Route
	body    string
	headers []string
	done    int // the status when it is let through
}

// writes are all requests of the gateway that are no reads. A new route without a
// body here fails the test.
func (s *system) writes(path func(string) string) []write {
	s.t.Helper()
	change := func(id string) write {
		return write{body: changeBody("u_1", "item1", "purchase", "p_"+id), headers: []string{"Idempotency-Key: " + id}, done: http.StatusOK}
	}
	known := map[string]write{
		"grant-entitlement":  change("grant"),
		"revoke-entitlement": change("revoke"),
		"link-identity":      {body: `{"access_token":"x"}`, done: http.StatusUnprocessableEntity},
		"register-me":        {done: http.StatusOK}, "mark-notification-read": {done: http.StatusOK},
		"receive-event": {body: change("event").body, done: http.StatusOK,
			headers: []string{"Ce-Specversion: 1.0", "Ce-Id: e1", "Ce-Source: /shop", "Ce-Type: purchase.completed"}},
		"join-queue":            {body: `{}`, headers: []string{"Idempotency-Key: join"}, done: http.StatusCreated},
		"cancel-ticket":         {done: http.StatusOK},
		"issue-idempotency-key": {done: http.StatusCreated},
		"transfer":              {body: `{"fromAccountId":1,"toAccountId":2,"amount":1}`, headers: []string{"Idempotency-Key: never issued"}, done: http.StatusBadRequest},
		"reverse-transfer":      {headers: []string{"Idempotency-Key: never issued"}, done: http.StatusNotFound},
		"open-account":          {body: `{"ownerUserId":"u_1","currency":"EUR","initialBalance":5}`, headers: []string{"Idempotency-Key: open"}, done: http.StatusCreated},
		"login-link":            {done: http.StatusOK}, "logout": {done: http.StatusNoContent},
	}
	routes := []fn.Route{fn.EventsRoute}
	for _, f := range functions.All {
		routes = append(routes, f.Routes...)
	}
	routes = append(routes, fn.Route{ID: "login-link", Method: http.MethodPost, Path: "/login/link"},
		fn.Route{ID: "logout", Method: http.MethodPost, Path: "/logout"})
	var all []write
	for _, route := range routes {
		if route.Method == http.MethodGet {
			continue
		}
		w, ok := known[route.ID]
		if !ok {
			s.t.Errorf("%s: how is it attacked?", route.ID)
			continue
		}
		w.Route = route
		w.Path = path(route.Path)
		all = append(all, w)
	}
	return all
}

// state is everything that a write could have changed.
func (s *system) state() string {
	s.t.Helper()
	return s.rows() + fmt.Sprint("; users ", s.count(`SELECT count(*) FROM account.users`), ", identities ", s.count(`SELECT count(*) FROM account.identities`),
		", accounts ", s.count(`SELECT count(*) FROM core.account`), ", keys ", s.count(`SELECT count(*) FROM integration.idempotency_key`),
		", read ", s.count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL`), ", queues ", s.queues())
}

// Another site cannot make a signed-in browser write anything.
func TestAttackCSRF(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	everything := signingIn{subject: "alice", roles: []string{"player", "operator", "entitlement-writer"}}
	v := s.visitor()
	v.signIn(i, "/", everything)
	notification := s.tell(i, v.whoami())
	ticket := s.joined(i.fresh(t, "alice", nil), "rank", "k1", `{"skill":1}`)
	path := strings.NewReplacer("{notification_id}", notification, "{mode}", "casual", "{ticket_id}", ticket).Replace
	host := strings.TrimPrefix(s.url, "http://")

	for _, w := range s.writes(path) {
		for name, headers := range map[string][]string{
			"no X-CSRF":                    nil,
			"no X-CSRF, from here":         {"Origin: " + s.url, "Sec-Fetch-Site: same-origin"},
			"no X-CSRF, typed in":          {"Sec-Fetch-Site: none"},
			"X-CSRF: true":                 {"X-CSRF: true"},
			"X-CSRF empty":                 {"X-CSRF: "},
			"X-CSRF: 01":                   {"X-CSRF: 01"},
			"X-CSRF: 1, 1":                 {"X-CSRF: 1, 1"},
			"X-XSRF":                       {"X-XSRF: 1", "X-CSRF-Token: 1", "X-Requested-With: XMLHttpRequest"},
			"another origin":               {csrf, "Origin: https://evil.example"},
			"another port":                 {csrf, "Origin: http://127.0.0.1:1"},
			"a host that begins like ours": {csrf, "Origin: " + s.url + ".evil.example"},
			"a host that ends like ours":   {csrf, "Origin: http://evil-" + host},
			"our host as the user":         {csrf, "Origin: http://" + host + "@evil.example"},
			"origin null":                  {csrf, "Origin: null"},
			"origin that is none":          {csrf, "Origin: x"},
			"from another site":            {csrf, "Sec-Fetch-Site: cross-site"},
			"from a sibling site":          {csrf, "Sec-Fetch-Site: same-site"},
			"from nobody knows where":      {csrf, "Sec-Fetch-Site: x"},
			"both, and they differ":        {csrf, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"},
			"a GET that is none":           {"X-HTTP-Method-Override: GET", "X-Method-Override: GET"},
			"a form":                       {"Content-Type: application/x-www-form-urlencoded"},
			"plain text":                   {"Content-Type: text/plain"},
		} {
			t.Run(w.ID+", "+name, func(t *testing.T) {
				s := s.in(t)
				browser := v.copied()
				browser.s = s
				before := s.state()
				a := browser.do(w.Method, w.Path, w.body, append(w.headers[:len(w.headers):len(w.headers)], headers...)...)
				wantProblem(t, a, http.StatusForbidden, "csrf_refused")
				if after := s.state(); after != before {
					t.Errorf("it changed something:\nbefore %s\nafter  %s", before, after)
				}
				if got := a.header.Values("Set-Cookie"); len(got) > 0 {
					t.Errorf("cookies %q", got)
				}
			})
		}
	}
	if !s.opens(v.cookie("_session")) {
		t.Fatal("the session has ended")
	}
	// A page of this site does it, and so does whoever has a token.
	for name, headers := range map[string][]string{
		"from here": {csrf, "Origin: " + s.url, "Sec-Fetch-Site: same-origin"}, "from an old browser": {csrf}, "from an old browser, with an origin": {csrf, "Origin: " + s.url},
	} {
		for _, w := range s.writes(path) {
			browser := s.visitor()
			browser.signIn(i, "/", everything)
			if a := browser.do(w.Method, w.Path, w.body, append(w.headers[:len(w.headers):len(w.headers)], headers...)...); a.status != w.done {
				t.Errorf("%s, %s: %d %s", w.ID, name, a.status, a.body)
			}
		}
	}
	token := i.fresh(t, "alice", map[string]any{"realm_access": map[string]any{"roles": everything.roles}})
	for _, w := range s.writes(path) {
		if w.ID == "logout" {
			continue // it is about a cookie
		}
		browser := v.copied() // the token decides, whatever cookie there is
		elsewhere := []string{"Authorization: Bearer " + token, "Origin: https://app.example", "Sec-Fetch-Site: cross-site"}
		if a := browser.do(w.Method, w.Path, w.body, append(w.headers[:len(w.headers):len(w.headers)], elsewhere...)...); a.status != w.done {
			t.Errorf("%s by token: %d %s", w.ID, a.status, a.body)
		}
	}
}

// tell grants item1 to user and returns the id of the notification of it.
func (s *system) tell(i *codeIssuer, user string) (notificationID string) {
	s.t.Helper()
	s.writer = i.token(s.t, nil)
	wantStatus(s.t, s.grant("told "+user, user, "item1"), http.StatusOK)
	s.tellAll()
	inbox := s.call(http.MethodGet, "/debug/notification/inbox/"+user, s.writer, "")
	wantStatus(s.t, inbox, http.StatusOK)
	list, _ := inbox.json(s.t)["notifications"].([]any)
	if len(list) != 1 {
		s.t.Fatalf("told %s", inbox.body)
	}
	notificationID, _ = list[0].(map[string]any)["notification_id"].(string)
	return notificationID
}

// The site's address as clients know it is a page of this site too, when a proxy
// changes the Host on the way; no other is.
func TestAttackCSRFBehindProxy(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i, "GATEWAY_URL=https://game.example")
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice"})
	for origin, status := range map[string]int{
		"https://game.example": 200, "https://evil.example": 403, "https://game.example.evil.example": 403, "https://game.example:8443": 403,
		"http://game.example": 403, "https://api.game.example": 403, "null": 403,
	} {
		if a := v.do(http.MethodPost, "/v1/me", "", csrf, "Origin: "+origin); a.status != status {
			t.Errorf("%s: %d %s", origin, a.status, a.body)
		}
	}
}
