package operations_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// somebody is a person about whom every domain knows something.
func somebody(t *testing.T) (d *desk, i *system.CodeIssuer, browser *system.Visitor, user string) {
	t.Helper()
	i = system.NewCodeIssuer(t)
	d = &desk{System: system.StartAt(t, i)}
	role := func(subject, role string) string {
		return i.Fresh(t, subject, map[string]any{"realm_access": map[string]any{"roles": []string{role}}})
	}
	d.operator, d.viewer, d.player, d.Writer = role("olga", "operator"), role("vera", "operations-viewer"), i.Fresh(t, "erin-at-the-issuer", nil), role("shop", "entitlement-writer")
	browser = d.Visitor()
	browser.SignIn(i, "/", system.SigningIn{Subject: "erin-at-the-issuer"})
	user = browser.Whoami()
	system.WantStatus(t, d.Grant("k1", user, "item1"), http.StatusOK)
	from, to := d.Opened(d.operator, user, "10"), d.Opened(d.operator, "u_other", "0")
	system.WantStatus(t, d.Pay(d.player, d.TransferKey(d.player), from, to, "2.5"), http.StatusOK)
	for range 2 {
		for _, function := range []string{"relay", "settle", "ledger", "notify", "deliver"} {
			d.Tick(function)
		}
	}
	return d, i, browser, user
}

// An export has all that is kept about a person, and is recorded; a viewer gets none.
func TestExport(t *testing.T) {
	t.Parallel()
	d, _, _, user := somebody(t)
	path := "/v1/operations/users/" + user + "/export"
	a := d.Call(http.MethodPost, path, d.operator, `{"reason":"she asked for it"}`, "Idempotency-Key: k")
	system.WantStatus(t, a, http.StatusOK)
	for _, want := range []string{"erin-at-the-issuer", "item1", "EntitlementGranted", "TransferSettled", `"balance":7.5`, `"amount":2.5`, `"history":[{`} {
		if !strings.Contains(string(a.Body), want) {
			t.Errorf("the export lacks %s: %s", want, a.Body)
		}
	}
	if n := d.Count(`SELECT count(*) FROM account.acts WHERE kind = 'export' AND status = 'DONE' AND actor = 'olga' AND reason = 'she asked for it' AND filter->>'owner' = $1`, user); n != 1 {
		t.Errorf("%d records of the export, want 1", n)
	}
	d.Untouched(func() {
		system.WantProblem(t, d.Call(http.MethodPost, path, d.viewer, `{"reason":"curious"}`, "Idempotency-Key: k"), http.StatusForbidden, "role_missing")
		system.WantProblem(t, d.Call(http.MethodPost, path, d.operator, `{"reason":""}`, "Idempotency-Key: k2"), http.StatusUnprocessableEntity, "request_invalid")
		if page := d.form("/console/people/"+user+"/export", d.viewer, url.Values{"reason": {"curious"}}); page.Status != http.StatusForbidden {
			t.Errorf("a viewer's form is answered %d", page.Status)
		}
	})
	page := d.form("/console/people/"+user+"/export", d.operator, url.Values{"reason": {"she asked again"}})
	if page.Status != http.StatusOK || !strings.Contains(string(page.Body), `href="data:application/json;base64,`) {
		t.Errorf("the form is answered %d %s, want a link that holds the document", page.Status, page.Body)
	}
}

// After an erasure no table has the person's name, a sign-in with the identity makes a new
// user, and money and audit are as they were.
func TestErase(t *testing.T) {
	t.Parallel()
	d, i, browser, user := somebody(t)
	count := func() (changes, moved, owned int) {
		return d.Count(`SELECT count(*) FROM entitlement.entitlement_audit WHERE user_id = $1`, user), d.Count(`SELECT count(*) FROM core.ledger JOIN core.account USING (account_id) WHERE owner_user_id = $1`, user),
			d.Count(`SELECT count(*) FROM core.account WHERE owner_user_id = $1`, user)
	}
	mine, theirs, old := d.Opened(d.operator, user, "20"), d.Opened(d.operator, "u_fourth", "0"), d.TransferKey(d.player)
	answered := d.Pay(d.player, old, mine, theirs, "3")
	system.WantStatus(t, answered, http.StatusOK)
	d.Tick("ledger")
	changes, moved, owned := count()
	filter := `{"owner":"` + user + `"}`
	if n := d.fits(d.viewer, `{"kind":"erase","queue":"accounts","filter":`+filter+`}`); n != 1 {
		t.Errorf("the dry run counts %d identities, want 1", n)
	}
	id := d.begun("k", order("erase", "accounts", filter, 1, 100)).ID
	kit.Eventually(t, "the identity is detached", func() bool {
		d.TryTick("console")
		return d.act(id).Done > 0
	})
	system.WantStatus(t, browser.Do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized)
	if got := d.act(id); got.Status != "RUNNING" {
		t.Errorf("the act is %+v, want it to wait until gateways have forgotten the identity", got)
	}
	// A gateway that remembers the identity still lets the old user ask: nothing moves twice.
	if repeated := d.Pay(d.player, old, mine, theirs, "3"); string(repeated.Body) != string(answered.Body) {
		t.Errorf("between the steps the old user's transfer is answered %s, want %s", repeated.Body, answered.Body)
	}
	again := d.Visitor()
	again.SignIn(i, "/", system.SigningIn{Subject: "erin-at-the-issuer"})
	somebodyNew := again.Whoami()
	if somebodyNew == user {
		t.Error("the identity still leads to the erased user")
	}
	// The new user's transfers are the new user's.
	from, to := d.Opened(d.operator, somebodyNew, "10"), d.Opened(d.operator, "u_third", "0")
	key := again.Do(http.MethodPost, "/v1/idempotency-keys", "", system.CSRF).JSON(t)["idempotencyKey"].(string)
	pay := func() string {
		a := again.Do(http.MethodPost, "/v1/transfers", `{"fromAccountId":`+from+`,"toAccountId":`+to+`,"amount":4}`, "Idempotency-Key: "+key, system.CSRF)
		system.WantStatus(t, a, http.StatusOK)
		return string(a.Body)
	}
	paid := pay()
	// Nobody makes the second step come early.
	for _, turn := range []string{"resume", "stop", "resume"} {
		system.WantStatus(t, d.Call(http.MethodPost, "/v1/operations/acts/"+id+"/"+turn, d.operator, ""), http.StatusOK)
	}
	d.Tick("console")
	if n := d.Count(`SELECT count(*) FROM account.acts WHERE status = 'RUNNING' AND next_at > now() + interval '30 s'`); n != 1 {
		t.Errorf("an act that was resumed is %+v, want it to wait as before", d.act(id))
	}
	// A transfer from before, whose process is gone, keeps the second step from ending.
	d.exec(`INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, expires_at, status, request_hash, attempt, started_at)
		VALUES ('erin-at-the-issuer', 'transfer', 'left behind', now() + interval '1 hour', 'IN_PROGRESS', sha256('x'), gen_random_uuid(), now() - interval '1 hour')`)
	d.exec(`UPDATE account.acts SET next_at = now()`) // instead of two minutes
	kit.Eventually(t, "the second step waits for it", func() bool {
		d.TryTick("console")
		return d.Count(`SELECT count(*) FROM account.acts WHERE status = 'RUNNING' AND next_at > now() + interval '2 s'`) == 1
	})
	d.Tick("watchdog")
	// The rest is as if an earlier version had begun it: its position was the identities alone.
	d.exec(`UPDATE account.acts SET next_at = now(), position = (position::jsonb -> 'Identities')::text`)
	d.done(id)
	again.SignIn(i, "/", system.SigningIn{Subject: "erin-at-the-issuer"})
	if repeated := pay(); repeated != paid {
		t.Errorf("a transfer's request was answered %s, and after the erasure %s", paid, repeated)
	}
	d.exec(`DELETE FROM integration.idempotency_key WHERE idempotency_key = $1`, key)
	d.exec(`DELETE FROM account.identities WHERE user_id IN (SELECT user_id FROM account.identities WHERE subject = 'erin-at-the-issuer')`) // the new user's
	var tables []string
	kit.Must(t, d.Pool.QueryRow(t.Context(), `SELECT array_agg(format('%I.%I', schemaname, tablename)) FROM pg_tables
		WHERE schemaname IN ('account', 'core', 'entitlement', 'integration', 'notification')`).Scan(&tables))
	if len(tables) < 15 {
		t.Fatalf("only %d tables were searched", len(tables))
	}
	for _, table := range tables {
		if n := d.Count(`SELECT count(*) FROM ` + table + ` t WHERE t::text LIKE '%erin-at-the-issuer%'`); n != 0 {
			t.Errorf("%d rows of %s say who it was", n, table)
		}
	}
	if n := d.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = $1`, user); n != 0 {
		t.Errorf("%d notifications are left, want none", n)
	}
	if c, m, o := count(); c != changes || m != moved || o != owned {
		t.Errorf("after the erasure there are %d changes, %d ledger entries and %d accounts; want %d, %d and %d as before", c, m, o, changes, moved, owned)
	}
	check := d.Call(http.MethodGet, "/v1/reconciliation", d.operator, "")
	var report struct{ Balanced bool }
	kit.Must(t, json.Unmarshal(check.Body, &report))
	if !report.Balanced {
		t.Errorf("the money does not add up: %s", check.Body)
	}
	system.WantProblem(t, d.begin("k2", order("erase", "accounts", filter, 1, 100)), http.StatusConflict, "nothing_to_do")
}
