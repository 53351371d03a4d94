package functions_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// mayUse is what callers get of a route that is about the owner or, where it has
// no id in its path, about themselves.
type mayUse struct {
	owner, other, operator, writer int
	// about says that the answer is about the caller and so differs from caller to
	// caller; the others' must not show what is the owner's.
	about bool
}

// routeAccess has every route of the registry. Nobody uses one without a token or
// a session.
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
}

// Whatever a route shows or does, it does for whom it belongs to. What is another's
// answers as what does not exist.
func TestAttackEveryRoute(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	browsers := map[string]*visitor{}
	for _, name := range []string{"owner", "other", "gone"} {
		browsers[name] = s.visitor()
		subject := strings.ReplaceAll(name, "gone", "owner")
		browsers[name].signIn(i, "/", signingIn{subject: subject})
	}
	ended := browsers["gone"].copied()
	wantStatus(t, browsers["gone"].do(http.MethodPost, "/logout", "", csrf), http.StatusNoContent)
	owner := browsers["owner"].whoami()
	notification := s.tell(i, owner)
	someone := s.userID(i.fresh(t, "somebody", nil)) // exists, and has nothing
	// The owner joins casual below, and one may wait once in each queue.
	ticket := browsers["owner"].queueUp("rank", `{"skill":1}`)
	account, transfer := s.fund(i, owner)
	there := strings.NewReplacer("{user_id}", owner, "{stock_keeping_unit}", "item1", "{notification_id}", notification,
		"{ticket_id}", ticket, "{account_id}", account, "{transfer_id}", transfer, "{mode}", "casual")
	nowhere := map[string]*strings.Replacer{
		"nobody": strings.NewReplacer("{user_id}", nudged(owner), "{stock_keeping_unit}", "item1", "{notification_id}", nudged(notification),
			"{ticket_id}", nudged(ticket), "{account_id}", "900000", "{transfer_id}", nudged(transfer)),
		"somebody": strings.NewReplacer("{user_id}", someone, "{stock_keeping_unit}", "item9", "{notification_id}", "n_x",
			"{ticket_id}", "rank_x", "{account_id}", "1000000000000", "{transfer_id}", "t_x"),
	}
	bearer := func(subject string, change map[string]any) []string {
		return []string{"Authorization: Bearer " + i.fresh(t, subject, change)}
	}
	role := func(role string) map[string]any {
		return map[string]any{"realm_access": map[string]any{"roles": []string{role}}}
	}
	type caller struct {
		name    string
		browser *visitor
		headers []string
		status  func(mayUse) int
		code    string
	}
	late := map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}
	nobody := func(mayUse) int { return http.StatusUnauthorized }
	callers := []caller{
		{"anonymous", s.visitor(), nil, nobody, "token_missing"},
		{"the owner's token, expired", s.visitor(), bearer("owner", late), nobody, "token_invalid"},
		{"the owner's session, ended", ended, []string{csrf}, nobody, "session_missing"},
		{"another by token", s.visitor(), bearer("other", nil), func(m mayUse) int { return m.other }, ""},
		{"another by session", browsers["other"], []string{csrf}, func(m mayUse) int { return m.other }, ""},
		{"an operator", s.visitor(), bearer("olga", role("operator")), func(m mayUse) int { return m.operator }, ""},
		{"a writer", s.visitor(), bearer("shop", role("entitlement-writer")), func(m mayUse) int { return m.writer }, ""},
		{"the owner by token", s.visitor(), bearer("owner", nil), func(m mayUse) int { return m.owner }, ""},
		{"the owner by session", browsers["owner"], []string{csrf}, func(m mayUse) int { return m.owner }, ""},
	}

	routes := []fn.Route{fn.EventsRoute}
	for _, f := range functions.All {
		routes = append(routes, f.Routes...)
	}
	seen := map[string]bool{}
	for _, route := range routes {
		expected, ok := routeAccess[route.ID]
		if !ok {
			t.Errorf("%s %s: who may use it?", route.Method, route.Path)
			continue
		}
		seen[route.ID] = true
		body, headers := s.example(route)
		for _, c := range callers {
			t.Run(route.ID+", "+c.name, func(t *testing.T) {
				browser := c.browser.copied()
				browser.s = s.in(t)
				headers := slices.Concat(headers, c.headers, []string{"Idempotency-Key: " + strings.Split(c.name, " by ")[0]})
				path := there.Replace(route.Path)
				if strings.Contains(path, "{") {
					t.Fatalf("what goes into %s?", path)
				}
				a := browser.open(route, path, body, headers)
				if want := c.status(expected); want >= 400 {
					wantProblem(t, a, want, c.code)
				} else {
					wantStatus(t, a, want)
				}
				if a.status == http.StatusNotFound {
					for where, replacer := range nowhere {
						not := browser.open(route, replacer.Replace(route.Path), body, headers)
						if not.status != a.status || string(not.body) != string(a.body) {
							t.Errorf("%s answers %d %s, and the owner's %d %s", where, not.status, not.body, a.status, a.body)
						}
					}
				}
				if expected.about && !strings.HasPrefix(c.name, "the owner") && strings.Contains(string(a.body), owner) {
					t.Errorf("the owner's: %s", a.body)
				}
				read := s.count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL`)
				if !strings.HasPrefix(c.name, "the owner by") && read > 0 && route.ID == "mark-notification-read" {
					t.Error("it is read")
				}
				if !strings.HasPrefix(c.name, "the owner by") && route.ID == "cancel-ticket" && !strings.Contains(s.queues(), ticket+"=QUEUED") {
					t.Error("it is cancelled")
				}
			})
		}
	}
	for id := range routeAccess {
		if !seen[id] {
			t.Errorf("there is no route %s", id)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL AND user_id = $1`, owner); n != 1 {
		t.Errorf("%d notifications are read, by their owner", n)
	}
}

// queueUp joins a queue by the visitor's session and returns the ticket's id.
func (v *visitor) queueUp(mode, attributes string) string {
	v.s.t.Helper()
	a := v.do(http.MethodPost, "/v1/matchmaking/queues/"+mode+"/tickets", `{"party_size":1,"idempotency_key":"k1","attributes":`+attributes+`}`, csrf)
	wantStatus(v.s.t, a, http.StatusCreated)
	return a.json(v.s.t)["ticket_id"].(string)
}

// fund opens an account with 10 for a user, and returns it and the transfer of its
// first balance.
func (s *system) fund(i *codeIssuer, user string) (account, transfer string) {
	s.t.Helper()
	operator := "Authorization: Bearer " + i.fresh(s.t, "treasurer", map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
	v := s.visitor()
	opened := v.do(http.MethodPost, "/v1/accounts", `{"ownerUserId":"`+user+`","currency":"EUR","initialBalance":10}`, operator, "Idempotency-Key: fund "+user)
	wantStatus(s.t, opened, http.StatusCreated)
	account = fmt.Sprint(opened.json(s.t)["accountId"])
	list := v.do(http.MethodGet, "/v1/accounts/"+account+"/transfers", "", operator)
	wantStatus(s.t, list, http.StatusOK)
	first := list.json(s.t)["transfers"].([]any)[0].(map[string]any)
	return account, first["transferId"].(string)
}

// nudged is an id like another's, of nobody.
func nudged(id string) string {
	last := id[len(id)-1]
	if last == '0' {
		return id[:len(id)-1] + "1"
	}
	return id[:len(id)-1] + "0"
}

// example is a body, and headers, for a route that takes some.
func (s *system) example(route fn.Route) (body string, headers []string) {
	for _, w := range s.writes(func(path string) string { return path }) {
		if w.ID == route.ID {
			return w.body, slices.DeleteFunc(slices.Clone(w.headers), func(h string) bool { return strings.HasPrefix(h, "Idempotency-Key") })
		}
	}
	return "", nil
}

// open is do, which does not wait for the end of a stream.
func (v *visitor) open(route fn.Route, path, body string, headers []string) answer {
	v.s.t.Helper()
	if !route.Stream {
		return v.do(route.Method, path, body, headers...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, route.Method, v.s.url+path, strings.NewReader(body))
	must(v.s.t, err)
	if cookies := v.cookieHeader(); cookies != "" {
		request.Header.Set("Cookie", cookies)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	must(v.s.t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v.s.read(response)
	}
	first := make([]byte, 512)
	n, err := io.ReadAtLeast(response.Body, first, 1)
	must(v.s.t, err)
	return answer{response.StatusCode, response.Header, first[:n]}
}
