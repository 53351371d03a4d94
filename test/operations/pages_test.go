package operations_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Operators act, viewers look, and to everybody else there is nothing. People who are not
// signed in are sent to sign in, and come back.
func TestWhoSeesTheConsole(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.failed(1, "u_1", "503")
	wish := order("requeue", "notifications", `{}`, 1, 1)
	for path, method := range map[string]string{
		"/console": http.MethodGet, "/console/flow": http.MethodGet, "/v1/operations/flow": http.MethodGet, "/v1/operations/users/u_1": http.MethodGet,
		"/v1/operations/acts": http.MethodPost, "/v1/operations/acts/dry-run": http.MethodPost, "/console/acts": http.MethodPost,
	} {
		system.WantProblem(t, d.Call(method, path, d.player, wish, "Idempotency-Key: k"), http.StatusNotFound, "route_not_found")
		system.WantProblem(t, d.Call(method, path, d.people.Token(t, map[string]any{"realm_access": map[string]any{"roles": []string{"entitlement-writer"}}}), wish, "Idempotency-Key: k"), http.StatusNotFound, "route_not_found")
		if method == http.MethodGet {
			system.WantStatus(t, d.Call(method, path, d.viewer, ""), http.StatusOK)
		}
	}
	system.WantProblem(t, d.Call(http.MethodPost, "/v1/operations/acts", d.viewer, wish, "Idempotency-Key: k"), http.StatusForbidden, "role_missing")
	refused := d.form("/console/acts", d.viewer, url.Values{"kind": {"requeue"}})
	if refused.Status != http.StatusForbidden || !strings.Contains(string(refused.Body), "role_missing") {
		t.Errorf("a viewer's form is answered %d %s, want 403", refused.Status, refused.Body)
	}
	away := d.Send(system.Request{Method: http.MethodGet, Path: "/console/acts?cursor=x"})
	if away.Status != http.StatusSeeOther || away.Header.Get("Location") != "/login?return_to=%2Fconsole%2Facts%3Fcursor%3Dx" {
		t.Errorf("without a sign-in the page is answered %d to %q, want the sign-in", away.Status, away.Header.Get("Location"))
	}
	system.WantProblem(t, d.Call(http.MethodGet, "/v1/operations/flow", "", ""), http.StatusUnauthorized, "token_missing")
	if d.withStatus("FAILED") != 1 {
		t.Error("somebody who may not requeued a row")
	}
}

// form sends a form as a page's script does.
func (d *desk) form(path, token string, values url.Values) system.Answer {
	d.T.Helper()
	return d.Send(system.Request{
		Method: http.MethodPost, Path: path, Token: token, Body: values.Encode(),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Hx-Request": {"true"}},
	})
}

// Every page and fragment is shown, with what it is for.
func TestPages(t *testing.T) {
	t.Parallel()
	d := setup(t, "MATCHMAKING_MODES=casual,rank")
	user := d.UserID(d.player)
	system.WantStatus(t, d.Grant("k1", user, "item1"), http.StatusOK)
	d.DeliverAll()
	d.Joined(d.player, "casual", "j1", `{}`)
	d.Opened(d.operator, user, "12.5")
	d.failed(30, user, "the endpoint answered 503")
	id := d.done(d.begun("k", order("requeue", "notifications", `{}`, 1, 10)).ID).ID
	system.WantStatus(t, d.Grant("odd", user, "../a?b#1"), http.StatusOK)
	for path, wants := range map[string][]string{
		"/console":                      {"<title>Now", "29 stuck", "Purchases", "Queue casual", "1 wait", "29 FAILED"},
		"/console/flow":                 {"Transfers"},
		"/console/queues/notifications": {"the endpoint answered 503", "Older", "Dry run: requeue"},
		"/console/queues/notifications?error_contains=41":   {"Nothing is stuck here"},
		"/console/queues/entitlement-outbox":                {"Nothing is stuck here"},
		"/console/queues/settlement-letters":                {"Nothing is stuck here"},
		"/console/acts":                                     {id, "the operator", "INC-42", "DONE"},
		"/console/acts/" + id:                               {"1 of 1 done", "INC-42"},
		"/console/acts/" + id + "/progress":                 {"<progress"},
		"/console/people":                                   {"User id"},
		"/console/people?user_id=" + user:                   {"the player", "item1", "EntitlementGranted", "casual", "QUEUED", "12.5 EUR"},
		"/console/people/u_nobody":                          {"Nobody has signed in with this id"},
		"/console/people/" + user + "/items/item1":          {"grant: ACTIVE"},
		"/console/people/" + user:                           {`/items/..%2Fa%3Fb%231"`},
		"/console/people/" + user + "/items/..%2Fa%3Fb%231": {"grant: ACTIVE"},
		"/console/money":                                    {"Balanced.", "EUR"},
		"/console/settings":                                 {"TICK_BUDGET", "relay", "IDENTITY_SIGNING_KEY", "set, not shown"},
		"/console/assets/console.css":                       {".way"},
		"/console/assets/plots.js":                          {"uPlot"},
	} {
		a := d.Call(http.MethodGet, path, d.viewer, "")
		if a.Status != http.StatusOK {
			t.Errorf("%s is answered %d %s", path, a.Status, a.Body)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(string(a.Body), want) {
				t.Errorf("%s does not show %q:\n%s", path, want, a.Body)
			}
		}
		for _, secret := range []string{d.Settings().IdentitySigningKey, d.Settings().OIDCClientSecret} {
			if strings.Contains(string(a.Body), secret) {
				t.Errorf("%s shows a secret", path)
			}
		}
	}
	for path, want := range map[string]int{
		"/console/nowhere": 404, "/console/queues/nowhere": 404, "/console/queues/sessions": 404, "/console/acts/act_x": 404, "/console/assets/layout.html": 404,
		"/console/assets/none.css": 404, "/console/queues/notifications?cursor=x": 400, "/console/queues/notifications?failed_from=x": 422, "/console/queues/notifications?id=x": 422,
	} {
		if a := d.Call(http.MethodGet, path, d.viewer, ""); a.Status != want || !strings.Contains(string(a.Body), `role="alert"`) {
			t.Errorf("%s is answered %d %s, want a page with %d", path, a.Status, a.Body, want)
		}
	}
}

// An operator's way through the forms: dry run, reason, act. A form that is sent twice
// begins one act.
func TestForms(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.failed(4, "u_1", "503")
	dry := d.form("/console/queues/notifications/dry-run", d.operator, url.Values{"kind": {"requeue"}, "error_contains": {"503"}})
	system.WantStatus(t, dry, http.StatusOK)
	unstorable := d.form("/console/queues/notifications/dry-run", d.operator, url.Values{"kind": {"requeue"}, "error_contains": {"\xff"}})
	system.WantStatus(t, unstorable, http.StatusUnprocessableEntity)
	body := string(dry.Body)
	field := func(name string) string {
		_, rest, _ := strings.Cut(body, `name="`+name+`"`)
		_, rest, _ = strings.Cut(rest, `value="`)
		value, _, _ := strings.Cut(rest, `"`)
		return strings.NewReplacer("&#34;", `"`, "&quot;", `"`).Replace(value)
	}
	filled := url.Values{"reason": {"INC-42"}}
	for _, name := range []string{"kind", "queue", "filter", "key", "per_second", "at_most"} {
		filled.Set(name, field(name))
	}
	if filled.Get("at_most") != "4" {
		t.Fatalf("the dry run does not say 4: %s", body)
	}
	var where string
	for range 2 {
		begun := d.form("/console/acts", d.operator, filled)
		system.WantStatus(t, begun, http.StatusCreated)
		where = begun.Header.Get("HX-Redirect")
	}
	if n := d.Count(`SELECT count(*) FROM notification.acts`); n != 1 {
		t.Errorf("the form, sent twice, began %d acts", n)
	}
	id := strings.TrimPrefix(where, "/console/acts/")
	if got := d.done(id); got.Done != 4 {
		t.Errorf("the act is %+v, want 4 done", got)
	}
	for change, value := range map[string]string{"reason": " ", "per_second": "0", "at_most": "x", "filter": "{", "key": ""} {
		bad := url.Values{}
		for name := range filled {
			bad.Set(name, filled.Get(name))
		}
		bad.Set(change, value)
		if a := d.form("/console/acts", d.operator, bad); a.Status != http.StatusUnprocessableEntity && a.Status != http.StatusBadRequest {
			t.Errorf("a form with the %s %q is answered %d %s", change, value, a.Status, a.Body)
		}
	}
	system.WantStatus(t, d.form("/console/acts/"+id+"/burn", d.operator, nil), http.StatusNotFound)
}

// A store that is away spoils its part of the picture only.
func TestPartsThatAreAway(t *testing.T) {
	t.Parallel()
	d := setup(t)
	kit.Must(t, d.NATS.Stop())
	a := d.Call(http.MethodGet, "/console", d.viewer, "")
	system.WantStatus(t, a, http.StatusOK)
	for _, want := range []string{"cannot be read", "nothing waits", "Notifications"} {
		if !strings.Contains(string(a.Body), want) {
			t.Errorf("without NATS the page does not show %q: %s", want, a.Body)
		}
	}
}

// Requests for the flow while a store hangs share one reading: with a reading each, the last
// would take ten times as long as the first.
func TestFlowOfAStoreThatHangs(t *testing.T) {
	t.Parallel()
	link, address := kit.Through(t, kit.Database(t))
	d := setup(t, "TRANSFER_DATABASE_URL="+address)
	link.Hang()
	defer link.Mend()
	readings := map[any]int{}
	var mutex sync.Mutex
	var looking sync.WaitGroup
	for range 10 {
		looking.Go(func() {
			a := d.Call(http.MethodGet, "/v1/operations/flow", d.viewer, "")
			mutex.Lock()
			defer mutex.Unlock()
			readings[a.JSON(t)["at"]]++
		})
	}
	looking.Wait()
	if len(readings) > 2 { // a request may begin when the first reading is old
		t.Errorf("ten requests at once caused %d readings, want one", len(readings))
	}
}

// A sample is taken every ten seconds, once however many processes tick.
func TestSamples(t *testing.T) {
	t.Parallel()
	d := setup(t)
	other := d.Another()
	for range 3 {
		d.Tick("console")
		other.Tick("console")
	}
	a := d.Call(http.MethodGet, "/v1/operations/samples?minutes=5", d.viewer, "")
	system.WantStatus(t, a, http.StatusOK)
	list, _ := a.JSON(t)["samples"].([]any)
	seen := map[any]bool{}
	for _, one := range list {
		at := one.(map[string]any)["at"]
		if seen[at] {
			t.Errorf("two samples of %v", at)
		}
		seen[at] = true
	}
	if len(list) < 1 {
		t.Errorf("no sample was taken: %s", a.Body)
	}
}
