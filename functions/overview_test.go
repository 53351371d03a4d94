package functions_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

const overviewPath = "/v1/me/overview"

// standIn stands in front of a function, and lets a test answer in its place.
type standIn struct {
	function http.Handler
	instead  atomic.Pointer[http.HandlerFunc]
}

func (p *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if instead := p.instead.Load(); instead != nil {
		(*instead)(w, r)
		return
	}
	p.function.ServeHTTP(w, r)
}

func (p *standIn) answers(instead http.HandlerFunc) { p.instead.Store(&instead) }
func (p *standIn) recovers()                        { p.instead.Store(nil) }

// standIn must be called before the first request.
func (s *system) standIn(function string) *standIn {
	local := s.runtime.Here
	p := &standIn{function: local[function]}
	local[function] = p
	return p
}

// wantOverview wants an overview whose parts are there, except for those that are
// in away with their codes.
func wantOverview(t testing.TB, a answer, away map[string]string) map[string]any {
	t.Helper()
	wantStatus(t, a, http.StatusOK)
	o := a.json(t)
	var names []string
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"account", "entitlements", "errors", "matchmaking"}; !slices.Equal(names, want) {
		t.Errorf("the overview has %q", names)
	}
	errors, _ := o["errors"].(map[string]any)
	if errors == nil || len(errors) != len(away) {
		t.Errorf("errors %v, want %v", o["errors"], away)
	}
	for _, name := range []string{"account", "entitlements", "matchmaking"} {
		code, isAway := away[name]
		if isAway != (o[name] == nil) {
			t.Errorf("%s is %v, and should it be away? %t", name, o[name], isAway)
		}
		if !isAway {
			continue
		}
		why, _ := errors[name].(map[string]any)
		if detail, _ := why["detail"].(string); why["code"] != code || detail == "" || strings.Contains(detail, "planted") {
			t.Errorf("%s is away because of %v, want %s", name, why, code)
		}
	}
	return o
}

// The overview is what the routes of its parts answer.
func TestOverview(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
	first := wantOverview(t, s.call(http.MethodGet, overviewPath, alice, ""), nil)
	if list, ok := first["entitlements"].([]any); !ok || len(list) != 0 {
		t.Errorf("who owns nothing has %v", first["entitlements"])
	}
	if waits, ok := first["matchmaking"].(map[string]any)["tickets"].([]any); !ok || len(waits) != 0 {
		t.Errorf("who waits nowhere has %v", first["matchmaking"])
	}
	user := s.userID(alice)
	const many = 101
	atOnce(8, func(worker int) {
		for n := worker; n < many-1; n += 8 {
			s.grant(fmt.Sprint("k", n), user, fmt.Sprintf("item%03d", n))
		}
	})
	s.grant("bob's", s.userID(people.player(t, "bob")), "item1")
	for name, token := range map[string]string{"the same token": alice, "another": people.token(t, map[string]any{"sub": "alice"})} {
		o := wantOverview(t, s.call(http.MethodGet, overviewPath, token, ""), nil)
		if me := s.call(http.MethodGet, mePath, token, "").json(t); !reflect.DeepEqual(o["account"], any(me)) {
			t.Errorf("%s: account %v, and %s has %v", name, o["account"], mePath, me)
		}
		list := s.call(http.MethodGet, "/v1/users/"+user+"/entitlements", token, "").json(t)
		if !reflect.DeepEqual(o["entitlements"], list["entitlements"]) || len(o["entitlements"].([]any)) != many-1 {
			t.Errorf("%s: %d entitlements, and the list has %d", name, len(o["entitlements"].([]any)), len(list["entitlements"].([]any)))
		}
	}
	// There is one more than a page: the cursor is that of the list.
	s.grant("last", user, "item999")
	o := s.call(http.MethodGet, overviewPath, alice, "").json(t)
	cursor, _ := o["entitlements_next_cursor"].(string)
	rest := s.call(http.MethodGet, "/v1/users/"+user+"/entitlements?cursor="+cursor, alice, "").json(t)["entitlements"].([]any)
	if len(o["entitlements"].([]any)) != many-1 || cursor == "" || len(rest) != 1 || rest[0].(map[string]any)["stock_keeping_unit"] != "item999" {
		t.Errorf("cursor %q, after it %v", cursor, rest)
	}
	wantProblem(t, s.call(http.MethodGet, overviewPath, "", ""), http.StatusUnauthorized, "token_missing")
	wantProblem(t, s.call(http.MethodGet, overviewPath+"?user_id=u_1", alice, ""), http.StatusUnprocessableEntity, "request_invalid")
}

// Parts are read at the same time.
func TestOverviewReadsAtOnce(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "OVERVIEW_TIMEOUT=10s")
	account, entitlements, ticket := s.standIn("account"), s.standIn("entitlements"), s.standIn("ticket")
	alice := people.player(t, "alice")
	wantStatus(t, s.call(http.MethodGet, mePath, alice, ""), http.StatusOK) // or it has to be found out first
	const slow = 1500 * time.Millisecond
	for _, p := range []*standIn{account, entitlements, ticket} {
		p.answers(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(slow)
			p.function.ServeHTTP(w, r)
		})
	}
	began := time.Now()
	wantOverview(t, s.call(http.MethodGet, overviewPath, alice, ""), nil)
	took := time.Since(began)
	t.Logf("three parts of %s took %s", slow, took)
	if took < slow || took > slow*18/10 {
		t.Errorf("three parts of %s took %s", slow, took)
	}
}

// However a part fails, it is null with a reason, and the others arrive in time.
func TestOverviewPartFails(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	const patience = 3 * time.Second // a busy machine; a function by itself would be given 10
	s, people := withPlayers(t, "WAKES=false", "OVERVIEW_TIMEOUT="+timeout.String())
	alice := people.player(t, "alice")
	parts := map[string]*standIn{"account": s.standIn("account"), "entitlements": s.standIn("entitlements"), "matchmaking": s.standIn("ticket")}
	user := s.call(http.MethodGet, mePath, alice, "").json(t)["user_id"].(string)
	s.grant("k1", user, "item1")
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
		"hangs":               {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout"},
		"hangs for good":      {func(http.ResponseWriter, *http.Request) { <-t.Context().Done() }, "timeout"},
	} {
		for which, p := range parts {
			p.answers(fault.answers)
			began := time.Now()
			a := s.call(http.MethodGet, overviewPath, alice, "")
			took := time.Since(began)
			p.recovers()
			t.Run(which+" "+name, func(t *testing.T) {
				wantOverview(t, a, map[string]string{which: fault.code})
				if took > timeout+patience {
					t.Errorf("it took %s", took)
				}
			})
		}
	}
	wantOverview(t, s.call(http.MethodGet, overviewPath, alice, ""), nil)
	// Who was never met cannot be told apart from anybody without the account.
	parts["account"].answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	began := time.Now()
	wantOverview(t, s.call(http.MethodGet, overviewPath, people.player(t, "stranger"), ""), map[string]string{"account": "timeout", "entitlements": "timeout", "matchmaking": "timeout"})
	if took := time.Since(began); took > timeout+patience {
		t.Errorf("it took %s", took)
	}
}

// Without the accounts' database, who is known still sees what they own; without
// any, there is still an answer.
func TestOverviewWithoutDatabases(t *testing.T) {
	t.Parallel()
	accounts, accountsURL := through(t, kit.Database(t))
	entitlements, entitlementsURL := through(t, kit.Database(t))
	accounts.mend(t)
	entitlements.mend(t)
	listener := kit.Listen(t)
	issuer := startDevIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
	s := start(t, listener, "OIDC_ISSUER="+issuer.URL(), "WAKES=false", "ACCOUNT_DATABASE_URL="+accountsURL, "ENTITLEMENT_DATABASE_URL="+entitlementsURL)
	s.writer = identity.Token(t, issuer.URL(), "purchase-service", "purchase-service-secret")
	stranger := identity.Token(t, issuer.URL(), "ops", "ops-secret")
	alice := s.person()
	alice.signIn("alice", "/")
	user := alice.do(http.MethodGet, mePath, "").json(t)["user_id"].(string)
	wantStatus(t, s.grant("k1", user, "item1"), http.StatusOK)
	wantStatus(t, s.call(http.MethodGet, mePath, s.writer, ""), http.StatusOK)

	accounts.cut()
	for name, a := range map[string]answer{"session": alice.do(http.MethodGet, overviewPath, ""), "token": s.call(http.MethodGet, overviewPath, s.writer, "")} {
		o := wantOverview(t, a, map[string]string{"account": "unavailable"})
		if list, _ := json.Marshal(o["entitlements"]); name == "session" && !strings.Contains(string(list), `"item1"`) {
			t.Errorf("entitlements %s", list)
		}
	}
	wantOverview(t, s.call(http.MethodGet, overviewPath, stranger, ""), map[string]string{"account": "unavailable", "entitlements": "unavailable", "matchmaking": "unavailable"})
	entitlements.cut()
	wantOverview(t, alice.do(http.MethodGet, overviewPath, ""), map[string]string{"account": "unavailable", "entitlements": "unavailable"})
	accounts.mend(t)
	entitlements.mend(t)
	eventually(t, 20*time.Second, "all is there again", func() bool {
		return len(alice.do(http.MethodGet, overviewPath, "").json(t)["errors"].(map[string]any)) == 0
	})
	wantOverview(t, s.call(http.MethodGet, overviewPath, stranger, ""), nil)
}
