package attack_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/system"
)

// write is a request that changes something.
type write struct {
	fn.Route
	body    string
	headers []string
	done    int // its status when accepted
}

// writes are all requests of the gateway that write. A new route without a body here
// fails the test.
func writes(s *system.System, path func(string) string) []write {
	s.T.Helper()
	change := func(id string) write {
		return write{body: system.ChangeBody("u_1", "item1", "purchase", "p_"+id), headers: []string{"Idempotency-Key: " + id}, done: http.StatusOK}
	}
	known := map[string]write{
		"grant-entitlement":  change("grant"),
		"revoke-entitlement": change("revoke"),
		"link-identity":      {body: `{"access_token":"x"}`, done: http.StatusUnprocessableEntity},
		"register-me":        {done: http.StatusOK}, "mark-notification-read": {done: http.StatusOK},
		"receive-event": {
			body: change("event").body, done: http.StatusOK,
			headers: []string{"Ce-Specversion: 1.0", "Ce-ID: e1", "Ce-Source: /shop", "Ce-Type: purchase.completed"},
		},
		"join-queue":            {body: `{}`, headers: []string{"Idempotency-Key: join"}, done: http.StatusCreated},
		"cancel-ticket":         {done: http.StatusOK},
		"issue-idempotency-key": {done: http.StatusCreated},
		"transfer":              {body: `{"fromAccountId":1,"toAccountId":2,"amount":1}`, headers: []string{"Idempotency-Key: never issued"}, done: http.StatusBadRequest},
		"reverse-transfer":      {headers: []string{"Idempotency-Key: never issued"}, done: http.StatusNotFound},
		"open-account":          {body: `{"ownerUserId":"u_1","currency":"EUR","initialBalance":5}`, headers: []string{"Idempotency-Key: open"}, done: http.StatusCreated},
		"dry-run-act":           {body: `{"kind":"requeue","queue":"notifications"}`, done: http.StatusOK},
		"begin-act": {
			body: `{"kind":"requeue","queue":"notifications","reason":"x","at_most":1}`, headers: []string{"Idempotency-Key: act"}, done: http.StatusConflict,
		},
		"export-user": {body: `{"reason":"x"}`, headers: []string{"Idempotency-Key: export"}, done: http.StatusOK},
		"stop-act":    {done: http.StatusNotFound}, "resume-act": {done: http.StatusNotFound},
		"console-forms": {done: http.StatusBadRequest},
		"login-link":    {done: http.StatusOK}, "logout": {done: http.StatusNoContent},
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
			s.T.Errorf("%s: this test has no body for it", route.ID)
			continue
		}
		w.Route = route
		w.Path = path(route.Path)
		all = append(all, w)
	}
	return all
}

// state is everything that a write could have changed.
func state(s *system.System) string {
	s.T.Helper()
	return s.Rows() + fmt.Sprint("; users ", s.Count(`SELECT count(*) FROM account.users`), ", identities ", s.Count(`SELECT count(*) FROM account.identities`),
		", accounts ", s.Count(`SELECT count(*) FROM core.account`), ", keys ", s.Count(`SELECT count(*) FROM integration.idempotency_key`),
		", read ", s.Count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL`), ", queues ", s.Queues())
}

// Another site cannot make a signed-in browser write anything.
func TestAttackCSRF(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	everything := system.SigningIn{Subject: "alice", Roles: []string{"player", "operator", "entitlement-writer"}}
	v := s.Visitor()
	v.SignIn(i, "/", everything)
	notification := notified(s, i, v.Whoami())
	ticket := s.Joined(i.Fresh(t, "alice", nil), "rank", "k1", `{"skill":1}`)
	path := strings.NewReplacer("{notification_id}", notification, "{mode}", "casual", "{ticket_id}", ticket, "{act_id}", "act_x", "{page...}", "acts").Replace
	host := strings.TrimPrefix(s.URL, "http://")

	for _, w := range writes(s, path) {
		for name, headers := range map[string][]string{
			"no X-CSRF":                    nil,
			"no X-CSRF, from here":         {"Origin: " + s.URL, "Sec-Fetch-Site: same-origin"},
			"no X-CSRF, typed in":          {"Sec-Fetch-Site: none"},
			"X-CSRF: true":                 {"X-CSRF: true"},
			"X-CSRF empty":                 {"X-CSRF: "},
			"X-CSRF: 01":                   {"X-CSRF: 01"},
			"X-CSRF: 1, 1":                 {"X-CSRF: 1, 1"},
			"X-XSRF":                       {"X-XSRF: 1", "X-CSRF-Token: 1", "X-Requested-With: XMLHttpRequest"},
			"another origin":               {system.CSRF, "Origin: https://evil.example"},
			"another port":                 {system.CSRF, "Origin: http://127.0.0.1:1"},
			"a host that begins like ours": {system.CSRF, "Origin: " + s.URL + ".evil.example"},
			"a host that ends like ours":   {system.CSRF, "Origin: http://evil-" + host},
			"our host as the user":         {system.CSRF, "Origin: http://" + host + "@evil.example"},
			"origin null":                  {system.CSRF, "Origin: null"},
			"origin that is none":          {system.CSRF, "Origin: x"},
			"from another site":            {system.CSRF, "Sec-Fetch-Site: cross-site"},
			"from a sibling site":          {system.CSRF, "Sec-Fetch-Site: same-site"},
			"from nobody knows where":      {system.CSRF, "Sec-Fetch-Site: x"},
			"both, and they differ":        {system.CSRF, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"},
			"a GET that is none":           {"X-HTTP-Method-Override: GET", "X-Method-Override: GET"},
			"a form":                       {"Content-Type: application/x-www-form-urlencoded"},
			"plain text":                   {"Content-Type: text/plain"},
		} {
			t.Run(w.ID+", "+name, func(t *testing.T) {
				s := s.In(t)
				browser := v.Copied()
				browser.S = s
				before := state(s)
				a := browser.Do(w.Method, w.Path, w.body, append(w.headers[:len(w.headers):len(w.headers)], headers...)...)
				system.WantProblem(t, a, http.StatusForbidden, "csrf_refused")
				if after := state(s); after != before {
					t.Errorf("the request changed something:\nbefore %s\nafter  %s", before, after)
				}
				if got := a.Header.Values("Set-Cookie"); len(got) > 0 {
					t.Errorf("the answer sets cookies: %q", got)
				}
			})
		}
	}
	if !s.Opens(v.Cookie("_session")) {
		t.Fatal("the session has ended")
	}
	// Pages of this site may write, and so may clients with a token.
	for name, headers := range map[string][]string{
		"from here": {system.CSRF, "Origin: " + s.URL, "Sec-Fetch-Site: same-origin"}, "from an old browser": {system.CSRF}, "from an old browser, with an origin": {system.CSRF, "Origin: " + s.URL},
	} {
		for _, w := range writes(s, path) {
			browser := s.Visitor()
			browser.SignIn(i, "/", everything)
			if a := browser.Do(w.Method, w.Path, w.body, append(w.headers[:len(w.headers):len(w.headers)], headers...)...); a.Status != w.done {
				t.Errorf("%s, %s: answered %d %s, want %d", w.ID, name, a.Status, a.Body, w.done)
			}
		}
	}
	token := i.Fresh(t, "alice", map[string]any{"realm_access": map[string]any{"roles": everything.Roles}})
	for _, w := range writes(s, path) {
		if w.ID == "logout" {
			continue // it is about a cookie
		}
		browser := v.Copied() // the token decides, with or without a cookie
		elsewhere := []string{"Authorization: Bearer " + token, "Origin: https://app.example", "Sec-Fetch-Site: cross-site"}
		if a := browser.Do(w.Method, w.Path, w.body, append(w.headers[:len(w.headers):len(w.headers)], elsewhere...)...); a.Status != w.done {
			t.Errorf("%s by token: answered %d %s, want %d", w.ID, a.Status, a.Body, w.done)
		}
	}
}

// notified grants item1 to user and returns the id of the notification.
func notified(s *system.System, i *system.CodeIssuer, user string) (notificationID string) {
	s.T.Helper()
	s.Writer = i.Token(s.T, nil)
	system.WantStatus(s.T, s.Grant("told "+user, user, "item1"), http.StatusOK)
	s.DeliverAll()
	inbox := s.Call(http.MethodGet, "/debug/notification/inbox/"+user, s.Writer, "")
	system.WantStatus(s.T, inbox, http.StatusOK)
	list, _ := inbox.JSON(s.T)["notifications"].([]any)
	if len(list) != 1 {
		s.T.Fatalf("the inbox has %d notifications, want 1: %s", len(list), inbox.Body)
	}
	notificationID, _ = list[0].(map[string]any)["notification_id"].(string)
	return notificationID
}

// Behind a proxy that changes Host, the public address is still this site, and no other
// is.
func TestAttackCSRFBehindProxy(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i, "GATEWAY_URL=https://game.example")
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	for origin, status := range map[string]int{
		"https://game.example": 200, "https://evil.example": 403, "https://game.example.evil.example": 403, "https://game.example:8443": 403,
		"http://game.example": 403, "https://api.game.example": 403, "null": 403,
	} {
		if a := v.Do(http.MethodPost, "/v1/me", "", system.CSRF, "Origin: "+origin); a.Status != status {
			t.Errorf("%s: answered %d %s, want %d", origin, a.Status, a.Body, status)
		}
	}
}
