package attack_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/system"
)

// mayUse holds the status that each caller gets of a route about the owner or, when its
// path has no id, about the caller.
type mayUse struct {
	owner, other, operator, writer int
	// about says that the answer is about the caller: other callers' must not show data
	// of the owner.
	about bool
}

// forOperators is for routes that exist for those who operate the system only.
func forOperators(status int) mayUse {
	return mayUse{owner: 404, other: 404, operator: status, writer: 404}
}

// routeAccess has every route of the registry. None can be used without a token or a
// session.
var routeAccess = map[string]mayUse{
	"get-my-overview":         {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"link-identity":           {owner: 422, other: 422, operator: 422, writer: 422},
	"register-me":             {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"get-me":                  {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"grant-entitlement":       {owner: 403, other: 403, operator: 403, writer: 200},
	"revoke-entitlement":      {owner: 403, other: 403, operator: 403, writer: 200},
	"receive-event":           {owner: 403, other: 403, operator: 403, writer: 200},
	"list-entitlements":       {owner: 200, other: 404, operator: 200, writer: 200},
	"get-entitlement":         {owner: 200, other: 404, operator: 200, writer: 200},
	"get-entitlement-history": {owner: 403, other: 403, operator: 200, writer: 403},
	"list-my-notifications":   {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"mark-notification-read":  {owner: 200, other: 404, operator: 404, writer: 404},
	"debug-inbox":             {owner: 403, other: 403, operator: 200, writer: 403},
	"stream-my-notifications": {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"join-queue":              {owner: 201, other: 201, operator: 201, writer: 201},
	"list-my-tickets":         {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"get-ticket":              {owner: 200, other: 404, operator: 404, writer: 404},
	"cancel-ticket":           {owner: 200, other: 404, operator: 404, writer: 404},
	"issue-idempotency-key":   {owner: 201, other: 201, operator: 201, writer: 201, about: true},
	"transfer":                {owner: 400, other: 400, operator: 400, writer: 400},
	"get-transfer":            {owner: 200, other: 404, operator: 200, writer: 404},
	"reverse-transfer":        {owner: 403, other: 403, operator: 400, writer: 403},
	"list-my-accounts":        {owner: 200, other: 200, operator: 200, writer: 200, about: true},
	"open-account":            {owner: 403, other: 403, operator: 201, writer: 403},
	"get-money-account":       {owner: 200, other: 404, operator: 200, writer: 404},
	"list-account-transfers":  {owner: 200, other: 404, operator: 200, writer: 404},
	"list-account-ledger":     {owner: 200, other: 404, operator: 200, writer: 404},
	"reconcile-money":         {owner: 403, other: 403, operator: 200, writer: 403},
	"get-flow":                forOperators(200),
	"list-samples":            forOperators(200),
	"list-failed":             forOperators(200),
	"list-letters":            forOperators(404),
	"list-acts":               forOperators(200),
	"get-act":                 forOperators(404),
	"get-user":                forOperators(200),
	"list-settings":           forOperators(200),
	"export-user":             forOperators(200),
	"dry-run-act":             forOperators(200),
	"begin-act":               forOperators(409),
	"stop-act":                forOperators(404),
	"resume-act":              forOperators(404),
	"console":                 forOperators(200),
	"console-pages":           forOperators(200),
	"console-forms":           forOperators(400),
}

// Every route serves only those who may use it. Another user's resource is answered like
// one that does not exist.
func TestAttackEveryRoute(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	browsers := map[string]*system.Visitor{}
	for _, name := range []string{"owner", "other", "gone"} {
		browsers[name] = s.Visitor()
		subject := strings.ReplaceAll(name, "gone", "owner")
		browsers[name].SignIn(i, "/", system.SigningIn{Subject: subject})
	}
	ended := browsers["gone"].Copied()
	system.WantStatus(t, browsers["gone"].Do(http.MethodPost, "/logout", "", system.CSRF), http.StatusNoContent)
	owner := browsers["owner"].Whoami()
	notification := notified(s, i, owner)
	someone := s.UserID(i.Fresh(t, "somebody", nil)) // exists, but owns nothing
	// The owner joins casual below, and a user may wait once in each queue.
	ticket := browsers["owner"].QueueUp("rank", `{"skill":1}`)
	account, transfer := fund(s, i, owner)
	there := strings.NewReplacer("{user_id}", owner, "{stock_keeping_unit}", "item1", "{notification_id}", notification,
		"{ticket_id}", ticket, "{account_id}", account, "{transfer_id}", transfer, "{mode}", "casual",
		"{queue}", "notifications", "{act_id}", "act_x", "{page...}", "acts")
	nowhere := map[string]*strings.Replacer{
		"nobody": strings.NewReplacer("{user_id}", system.UnusedID(owner), "{stock_keeping_unit}", "item1", "{notification_id}", system.UnusedID(notification),
			"{ticket_id}", system.UnusedID(ticket), "{account_id}", "900000", "{transfer_id}", system.UnusedID(transfer),
			"{queue}", "settings", "{act_id}", "act_01h455vb4pex5vsknk084sn02q", "{page...}", "settings"),
		"somebody": strings.NewReplacer("{user_id}", someone, "{stock_keeping_unit}", "item9", "{notification_id}", "n_x",
			"{ticket_id}", "rank_x", "{account_id}", "1000000000000", "{transfer_id}", "t_x",
			"{queue}", "nowhere", "{act_id}", "act_y", "{page...}", "nowhere"),
	}
	bearer := func(subject string, change map[string]any) []string {
		return []string{"Authorization: Bearer " + i.Fresh(t, subject, change)}
	}
	role := func(role string) map[string]any {
		return map[string]any{"realm_access": map[string]any{"roles": []string{role}}}
	}
	type caller struct {
		name    string
		browser *system.Visitor
		headers []string
		status  func(mayUse) int
		code    string
	}
	late := map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}
	nobody := func(mayUse) int { return http.StatusUnauthorized }
	callers := []caller{
		{"anonymous", s.Visitor(), nil, nobody, "token_missing"},
		{"the owner's token, expired", s.Visitor(), bearer("owner", late), nobody, "token_invalid"},
		{"the owner's session, ended", ended, []string{system.CSRF}, nobody, "session_missing"},
		{"another by token", s.Visitor(), bearer("other", nil), func(m mayUse) int { return m.other }, ""},
		{"another by session", browsers["other"], []string{system.CSRF}, func(m mayUse) int { return m.other }, ""},
		{"an operator", s.Visitor(), bearer("olga", role("operator")), func(m mayUse) int { return m.operator }, ""},
		{"a writer", s.Visitor(), bearer("shop", role("entitlement-writer")), func(m mayUse) int { return m.writer }, ""},
		{"the owner by token", s.Visitor(), bearer("owner", nil), func(m mayUse) int { return m.owner }, ""},
		{"the owner by session", browsers["owner"], []string{system.CSRF}, func(m mayUse) int { return m.owner }, ""},
	}

	routes := []fn.Route{fn.EventsRoute}
	for _, f := range functions.All {
		routes = append(routes, f.Routes...)
	}
	seen := map[string]bool{}
	for _, route := range routes {
		expected, ok := routeAccess[route.ID]
		if !ok {
			t.Errorf("%s %s is not in routeAccess", route.Method, route.Path)
			continue
		}
		seen[route.ID] = true
		body, headers := example(s, route)
		for _, c := range callers {
			t.Run(route.ID+", "+c.name, func(t *testing.T) {
				browser := c.browser.Copied()
				browser.S = s.In(t)
				headers := slices.Concat(headers, c.headers, []string{"Idempotency-Key: " + strings.Split(c.name, " by ")[0]})
				path := there.Replace(route.Path)
				if strings.Contains(path, "{") {
					t.Fatalf("a parameter is not replaced: %s", path)
				}
				a := browser.Open(route, path, body, headers)
				want := c.status(expected)
				if want == http.StatusUnauthorized && route.Page && route.Method == http.MethodGet {
					want = http.StatusSeeOther // to the sign-in
				}
				if want >= 400 && !(route.Page && c.name == "an operator") { // pages say it as a page
					system.WantProblem(t, a, want, c.code)
				} else {
					system.WantStatus(t, a, want)
				}
				if a.Status == http.StatusNotFound {
					for where, replacer := range nowhere {
						not := browser.Open(route, replacer.Replace(route.Path), body, headers)
						if not.Status != a.Status || string(not.Body) != string(a.Body) {
							t.Errorf("%s: answered %d %s, but the owner's was answered %d %s", where, not.Status, not.Body, a.Status, a.Body)
						}
					}
				}
				if expected.about && !strings.HasPrefix(c.name, "the owner") && strings.Contains(string(a.Body), owner) {
					t.Errorf("the answer shows the owner: %s", a.Body)
				}
				read := s.Count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL`)
				if !strings.HasPrefix(c.name, "the owner by") && read > 0 && route.ID == "mark-notification-read" {
					t.Error("the owner's notification is marked read")
				}
				if !strings.HasPrefix(c.name, "the owner by") && route.ID == "cancel-ticket" && !strings.Contains(s.Queues(), ticket+"=QUEUED") {
					t.Error("the owner's ticket is cancelled")
				}
			})
		}
	}
	for id := range routeAccess {
		if !seen[id] {
			t.Errorf("routeAccess has %s, but there is no such route", id)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL AND user_id = $1`, owner); n != 1 {
		t.Errorf("the owner has %d read notifications, want 1", n)
	}
}

// fund opens an account with 10 for a user, and returns it and the transfer that funded
// it.
func fund(s *system.System, i *system.CodeIssuer, user string) (account, transfer string) {
	s.T.Helper()
	operator := "Authorization: Bearer " + i.Fresh(s.T, "treasurer", map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
	v := s.Visitor()
	opened := v.Do(http.MethodPost, "/v1/accounts", `{"ownerUserId":"`+user+`","currency":"EUR","initialBalance":10}`, operator, "Idempotency-Key: fund "+user)
	system.WantStatus(s.T, opened, http.StatusCreated)
	account = fmt.Sprint(opened.JSON(s.T)["accountId"])
	list := v.Do(http.MethodGet, "/v1/accounts/"+account+"/transfers", "", operator)
	system.WantStatus(s.T, list, http.StatusOK)
	first := list.JSON(s.T)["transfers"].([]any)[0].(map[string]any)
	return account, first["transferId"].(string)
}

// example returns a body and headers for a route that needs them.
func example(s *system.System, route fn.Route) (body string, headers []string) {
	for _, w := range writes(s, func(path string) string { return path }) {
		if w.ID == route.ID {
			return w.body, slices.DeleteFunc(slices.Clone(w.headers), func(h string) bool { return strings.HasPrefix(h, "Idempotency-Key") })
		}
	}
	return "", nil
}
