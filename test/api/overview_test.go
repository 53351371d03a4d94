package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// The overview has what the routes of its parts answer.
func TestOverview(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	first := system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, alice, ""), nil)
	if list, ok := first["entitlements"].([]any); !ok || len(list) != 0 {
		t.Errorf("a user without entitlements has %v, want []", first["entitlements"])
	}
	if waits, ok := first["matchmaking"].(map[string]any)["tickets"].([]any); !ok || len(waits) != 0 {
		t.Errorf("a user without tickets has %v, want []", first["matchmaking"])
	}
	user := s.UserID(alice)
	const many = 101
	system.AtOnce(8, func(worker int) {
		for n := worker; n < many-1; n += 8 {
			s.Grant(fmt.Sprint("k", n), user, fmt.Sprintf("item%03d", n))
		}
	})
	s.Grant("bob's", s.UserID(people.Player(t, "bob")), "item1")
	for name, token := range map[string]string{"the same token": alice, "another": people.Token(t, map[string]any{"sub": "alice"})} {
		o := system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, token, ""), nil)
		if me := s.Call(http.MethodGet, system.MePath, token, "").JSON(t); !reflect.DeepEqual(o["account"], any(me)) {
			t.Errorf("%s: account %v, and %s has %v", name, o["account"], system.MePath, me)
		}
		list := s.Call(http.MethodGet, "/v1/users/"+user+"/entitlements", token, "").JSON(t)
		if !reflect.DeepEqual(o["entitlements"], list["entitlements"]) || len(o["entitlements"].([]any)) != many-1 {
			t.Errorf("%s: %d entitlements, and the list has %d", name, len(o["entitlements"].([]any)), len(list["entitlements"].([]any)))
		}
	}
	// With one more than a page, the cursor is that of the list.
	s.Grant("last", user, "item999")
	o := s.Call(http.MethodGet, system.OverviewPath, alice, "").JSON(t)
	cursor, _ := o["entitlements_next_cursor"].(string)
	rest := s.Call(http.MethodGet, "/v1/users/"+user+"/entitlements?cursor="+cursor, alice, "").JSON(t)["entitlements"].([]any)
	if len(o["entitlements"].([]any)) != many-1 || cursor == "" || len(rest) != 1 || rest[0].(map[string]any)["stock_keeping_unit"] != "item999" {
		t.Errorf("cursor %q, then %v, want item999 alone", cursor, rest)
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.OverviewPath, "", ""), http.StatusUnauthorized, "token_missing")
	system.WantProblem(t, s.Call(http.MethodGet, system.OverviewPath+"?user_id=u_1", alice, ""), http.StatusUnprocessableEntity, "request_invalid")
}

// The parts are read concurrently.
func TestOverviewReadsAtOnce(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "OVERVIEW_TIMEOUT=10s")
	account, entitlements, ticket := s.StandIn("account"), s.StandIn("entitlements"), s.StandIn("ticket")
	alice := people.Player(t, "alice")
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, alice, ""), http.StatusOK) // so that the gateway knows her user id
	const slow = 1500 * time.Millisecond
	for _, p := range []*system.StandIn{account, entitlements, ticket} {
		p.Answers(func(w http.ResponseWriter, r *http.Request) {
			kit.Pause(slow)
			p.Function.ServeHTTP(w, r)
		})
	}
	began := time.Now()
	system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, alice, ""), nil)
	took := time.Since(began)
	t.Logf("three parts of %s took %s", slow, took)
	if took < slow || took > slow*18/10 {
		t.Errorf("three parts of %s each took %s together", slow, took)
	}
}

// A part that fails, however it does, is null with a reason, and the others arrive.
func TestOverviewPartFails(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "OVERVIEW_TIMEOUT=10s") // none of these takes its time
	alice, parts := overviewParts(t, s, people)
	writes := func(status int, media, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const problemJSON, plain = "application/problem+json", "application/json"
	for name, fault := range map[string]struct {
		answers http.HandlerFunc
		code    string
	}{
		"away":                {writes(503, problemJSON, `{"status":503,"code":"unavailable","detail":"planted"}`), "unavailable"},
		"away, with a page":   {writes(503, "text/html", "<h1>planted</h1>"), "unavailable"},
		"timed out":           {writes(504, problemJSON, `{"status":504,"code":"timeout","detail":"planted"}`), "unavailable"},
		"failed":              {writes(500, problemJSON, `{"status":500,"code":"planted","detail":"planted"}`), "internal_error"},
		"does not believe us": {writes(401, problemJSON, `{"status":401,"code":"statement_invalid","detail":"planted"}`), "unavailable"},
		"another status":      {writes(302, plain, `{"planted":1}`), "internal_error"},
		"refuses":             {writes(403, problemJSON, `{"status":403,"code":"role_missing","detail":"Not you."}`), "role_missing"},
		"garbage":             {writes(200, plain, "\x00planted"), "internal_error"},
		"a page":              {writes(200, "text/html", "<h1>planted</h1>"), "internal_error"},
		"nothing":             {writes(200, plain, ""), "internal_error"},
		"cut off":             {writes(200, plain, `{"entitlements":[`), "internal_error"},
		"another type":        {writes(200, plain, `[]`), "internal_error"},
		"far too much":        {writes(200, plain, `{"entitlements":[],"x":"`+strings.Repeat("x", 2<<20)+`"}`), "internal_error"},
		"hangs up":            {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "internal_error"},
	} {
		for which, p := range parts {
			p.Answers(fault.answers)
			a := s.Call(http.MethodGet, system.OverviewPath, alice, "")
			p.Recovers()
			t.Run(which+" "+name, func(t *testing.T) { system.WantOverview(t, a, map[string]string{which: fault.code}) })
		}
	}
	system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, alice, ""), nil)
	// A proxy's problem may leave out its status.
	parts["account"].Answers(writes(422, problemJSON, `{"type":"about:blank","title":"planted","code":"planted","detail":"planted"}`))
	system.WantProblem(t, s.Call(http.MethodGet, system.MePath, people.Player(t, "stranger"), ""), http.StatusUnprocessableEntity, "planted")
}

// A part that hangs is null with a reason, and the others arrive in time.
func TestOverviewPartHangs(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	const patience = 3 * time.Second // for a busy machine; a function alone may take 10
	s, people := system.StartWithPeople(t, "WAKES=false", "OVERVIEW_TIMEOUT="+timeout.String())
	alice, parts := overviewParts(t, s, people)
	asks := func(t *testing.T, token string, errors map[string]string) {
		t.Helper()
		began := time.Now()
		system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, token, ""), errors)
		if took := time.Since(began); took > timeout+patience {
			t.Errorf("the overview took %s", took)
		}
	}
	untilGivenUp := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	forGood := func(http.ResponseWriter, *http.Request) { <-t.Context().Done() }
	for name, hangs := range map[string]http.HandlerFunc{"until given up": untilGivenUp, "for good": forGood} {
		for which, p := range parts {
			t.Run(which+" "+name, func(t *testing.T) {
				p.Answers(hangs)
				defer p.Recovers()
				asks(t, alice, map[string]string{which: "timeout"})
			})
		}
	}
	asks(t, alice, nil)
	// Without the account function a new identity has no user id, so every part fails.
	parts["account"].Answers(untilGivenUp)
	asks(t, people.Player(t, "stranger"), map[string]string{"account": "timeout", "entitlements": "timeout", "matchmaking": "timeout"})
}

// overviewParts puts a stand-in before each part of the overview, and gives alice, who
// is known and owns an item, her token.
func overviewParts(t *testing.T, s *system.System, people *system.People) (alice string, parts map[string]*system.StandIn) {
	t.Helper()
	alice = people.Player(t, "alice")
	parts = map[string]*system.StandIn{"account": s.StandIn("account"), "entitlements": s.StandIn("entitlements"), "matchmaking": s.StandIn("ticket")}
	s.Grant("k1", s.UserID(alice), "item1")
	return alice, parts
}

// Without the account database, known users still see what they own; without any
// database, there is still an answer.
func TestOverviewWithoutDatabases(t *testing.T) {
	t.Parallel()
	accounts, accountsURL := kit.Through(t, kit.Database(t))
	entitlements, entitlementsURL := kit.Through(t, kit.Database(t))
	listener := kit.Listen(t)
	issuer := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
	s := system.StartOn(t, listener, "OIDC_ISSUER="+issuer.URL(), "WAKES=false", "ACCOUNT_DATABASE_URL="+accountsURL, "ENTITLEMENT_DATABASE_URL="+entitlementsURL)
	s.Writer = identity.Token(t, issuer.URL(), "purchase-service", "purchase-service-secret")
	stranger := identity.Token(t, issuer.URL(), "ops", "ops-secret")
	alice := s.Person()
	alice.SignIn("alice", "/")
	user := alice.Do(http.MethodGet, system.MePath, "").JSON(t)["user_id"].(string)
	system.WantStatus(t, s.Grant("k1", user, "item1"), http.StatusOK)
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, s.Writer, ""), http.StatusOK)

	accounts.Cut()
	for name, a := range map[string]system.Answer{"session": alice.Do(http.MethodGet, system.OverviewPath, ""), "token": s.Call(http.MethodGet, system.OverviewPath, s.Writer, "")} {
		o := system.WantOverview(t, a, map[string]string{"account": "unavailable"})
		if list, _ := json.Marshal(o["entitlements"]); name == "session" && !strings.Contains(string(list), `"item1"`) {
			t.Errorf("the entitlements are %s, want item1", list)
		}
	}
	system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, stranger, ""), map[string]string{"account": "unavailable", "entitlements": "unavailable", "matchmaking": "unavailable"})
	entitlements.Cut()
	system.WantOverview(t, alice.Do(http.MethodGet, system.OverviewPath, ""), map[string]string{"account": "unavailable", "entitlements": "unavailable"})
	accounts.Mend()
	entitlements.Mend()
	kit.Eventually(t, "all parts are there again", func() bool {
		return len(alice.Do(http.MethodGet, system.OverviewPath, "").JSON(t)["errors"].(map[string]any)) == 0
	})
	system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, stranger, ""), nil)
}
