package attack_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A function believes statements of the gateway that are for it, and nothing else.
func TestForgedCaller(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	var ours jose.JSONWebKey
	kit.Must(t, json.Unmarshal([]byte(s.Settings().IdentitySigningKey), &ours))
	public, attacker, err := ed25519.GenerateKey(rand.Reader)
	kit.Must(t, err)
	now := time.Now()
	claims := func(path string, change map[string]any) map[string]any {
		c := map[string]any{
			"iss": "miniserver-gateway", "sub": "svc", "aud": []string{"grant"}, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
			"roles": []string{"entitlement-writer"}, "method": http.MethodPost, "path": path,
		}
		maps.Copy(c, change)
		maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
		return c
	}
	secret := []byte(ours.Public().Key.(ed25519.PublicKey))
	for path, kind := range map[string]string{system.GrantsPath: "application/json", system.EventsPath: "application/cloudevents+json"} {
		signed := func(key any, change map[string]any, header map[jose.HeaderKey]any) string {
			return auth.StatementHeader + ": " + system.Sign(t, jose.EdDSA, key, claims(path, change), header)
		}
		good := strings.TrimPrefix(signed(ours, nil, nil), auth.StatementHeader+": ")
		pieces := strings.Split(good, ".")
		ask := func(s *system.System, headers []string) system.Answer {
			body := system.ChangeBody("u_1", "item1", "x", "y")
			if path == system.EventsPath {
				body = system.Purchase("completed", "e1", "u_1", "item1", "p_1").Envelope(nil)
			}
			return s.Direct("grant", http.MethodPost, path, body, append([]string{"Idempotency-Key: k1", "Content-Type: " + kind}, headers...)...)
		}
		for name, headers := range map[string][]string{
			"nothing":            nil,
			"X-User headers":     {"X-User-ID: svc", "X-User-Roles: entitlement-writer", "X-Forwarded-User: svc", "Remote-User: svc"},
			"an access token":    {"Authorization: Bearer " + s.Writer},
			"the access token":   {auth.StatementHeader + ": " + s.Writer},
			"empty":              {auth.StatementHeader + ": "},
			"garbage":            {auth.StatementHeader + ": a.b.c"},
			"JSON":               {auth.StatementHeader + `: {"sub":"svc","roles":["entitlement-writer"]}`},
			"Bearer":             {auth.StatementHeader + ": Bearer " + good},
			"alg none":           {auth.StatementHeader + ": " + system.Part(map[string]any{"alg": "none", "kid": ours.KeyID}) + "." + pieces[1] + "."},
			"no signature":       {auth.StatementHeader + ": " + pieces[0] + "." + pieces[1] + "."},
			"other claims":       {auth.StatementHeader + ": " + pieces[0] + "." + system.Part(claims(path, map[string]any{"sub": "root"})) + "." + pieces[2]},
			"HS256 public key":   {auth.StatementHeader + ": " + system.Sign(t, jose.HS256, secret, claims(path, nil), map[jose.HeaderKey]any{"kid": ours.KeyID})},
			"unknown key":        {signed(jose.JSONWebKey{Key: attacker, KeyID: "x"}, nil, nil)},
			"our key id":         {signed(jose.JSONWebKey{Key: attacker, KeyID: ours.KeyID}, nil, nil)},
			"no key id":          {signed(attacker, nil, nil)},
			"attacker's jwk":     {signed(attacker, nil, map[jose.HeaderKey]any{"kid": ours.KeyID, "jwk": jose.JSONWebKey{Key: public}})},
			"for revoke":         {signed(ours, map[string]any{"aud": []string{"revoke"}}, nil)},
			"for nobody":         {signed(ours, map[string]any{"aud": nil}, nil)},
			"for grants":         {signed(ours, map[string]any{"aud": "grants"}, nil)},
			"another method":     {signed(ours, map[string]any{"method": http.MethodGet}, nil)},
			"method in lower":    {signed(ours, map[string]any{"method": "post"}, nil)},
			"no method":          {signed(ours, map[string]any{"method": nil}, nil)},
			"another path":       {signed(ours, map[string]any{"path": system.RevokesPath}, nil)},
			"a path that begins": {signed(ours, map[string]any{"path": path[:len(path)-1]}, nil)},
			"a pattern":          {signed(ours, map[string]any{"path": "/v1/{rest...}"}, nil)},
			"no path":            {signed(ours, map[string]any{"path": nil}, nil)},
			"expired":            {signed(ours, map[string]any{"exp": now.Add(-time.Second).Unix()}, nil)},
			"never expires":      {signed(ours, map[string]any{"exp": nil}, nil)},
			"not yet":            {signed(ours, map[string]any{"nbf": now.Add(time.Minute).Unix()}, nil)},
			"from the future":    {signed(ours, map[string]any{"iat": now.Add(time.Hour).Unix(), "exp": now.Add(2 * time.Hour).Unix()}, nil)},
			"another issuer":     {signed(ours, map[string]any{"iss": "somebody"}, nil)},
			"no issuer":          {signed(ours, map[string]any{"iss": nil}, nil)},
			"no subject":         {signed(ours, map[string]any{"sub": nil}, nil)},
			"roles in a header":  {signed(ours, map[string]any{"sub": ""}, nil), "X-User-Roles: entitlement-writer"},
			"lowercase's header": {"miniserver_caller: " + good},
		} {
			t.Run(path+", "+name, func(t *testing.T) {
				s := s.In(t)
				s.Untouched(func() { system.WantProblem(t, ask(s, headers), http.StatusUnauthorized, "statement_invalid") })
			})
		}
		// The same statement without a flaw is believed, so each was refused for its own
		// flaw.
		system.WantStatus(t, ask(s, []string{auth.StatementHeader + ": " + good}), http.StatusOK)
	}
}

// A statement that somebody intercepted is good for no other route of its function.
func TestStatementIsForOneRoute(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	signer, err := auth.NewSigner(s.Settings().IdentitySigningKey)
	kit.Must(t, err)
	operator := auth.Identity{Issuer: "https://issuer.example", Subject: "olga", UserID: "u_1", Roles: []string{auth.RoleOperator, auth.RoleEntitlementWriter}}
	filled := strings.NewReplacer("{user_id}", "u_1", "{stock_keeping_unit}", "item1", "{account_id}", "1", "{transfer_id}", "t_1",
		"{mode}", "casual", "{ticket_id}", "casual_1", "{notification_id}", "n_1")
	replayed := 0
	for _, f := range functions.All {
		for _, seen := range f.Routes {
			statement, err := signer.Sign(auth.Call{Function: f.Name, Method: seen.Method, Path: filled.Replace(seen.Path)}, operator)
			kit.Must(t, err)
			for _, other := range f.Routes {
				if f.Public || other.ID == seen.ID {
					continue
				}
				replayed++
				s.Untouched(func() {
					a := s.Direct(f.Name, other.Method, filled.Replace(other.Path), "{}", auth.StatementHeader+": "+statement, "Idempotency-Key: k1")
					if code := a.JSON(t)["code"]; code != "statement_invalid" {
						t.Errorf("a statement for %s on %s: %d %v, want 401 statement_invalid", seen.ID, other.ID, a.Status, code)
					}
				})
			}
		}
	}
	if replayed < 50 {
		t.Errorf("only %d replays were tried, want 50 and more", replayed)
	}
}

// Every function refuses requests to its routes without a statement.
func TestEveryRouteNeedsAStatement(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	routes := 0
	for _, f := range functions.All {
		if f.Public {
			continue
		}
		paths := f.Routes
		if len(f.Events) > 0 {
			paths = append(paths[:len(paths):len(paths)], fn.EventsRoute)
		}
		for _, route := range paths {
			routes++
			path := strings.NewReplacer("{user_id}", "u_1", "{stock_keeping_unit}", "item1").Replace(route.Path)
			system.WantProblem(t, s.Direct(f.Name, route.Method, path, "{}"), http.StatusUnauthorized, "statement_invalid")
		}
	}
	if routes < 8 {
		t.Errorf("only %d routes were tried, want 8 and more", routes)
	}
}

// A function checks the role itself: a statement works for all who see it, and a gateway
// may be older than the function.
func TestFunctionsCheckRoles(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	checked := 0
	path := strings.NewReplacer("{user_id}", "u_1", "{stock_keeping_unit}", "item1", "{account_id}", "1", "{transfer_id}", "t_1",
		"{queue}", "notifications", "{act_id}", "act_1", "{page...}", "acts")
	for _, f := range functions.All {
		routes := f.Routes
		if len(f.Events) > 0 {
			routes = append(routes[:len(routes):len(routes)], fn.EventsRoute)
		}
		for _, route := range routes {
			if f.Public || len(route.Roles) == 0 {
				continue
			}
			for _, role := range []string{auth.RolePlayer, auth.RoleEntitlementWriter, auth.RoleOperator, auth.RoleViewer} {
				if slices.Contains(route.Roles, role) {
					continue
				}
				checked++
				status, code := http.StatusForbidden, "role_missing"
				if len(route.ShownTo) > 0 && !slices.Contains(route.ShownTo, role) {
					status, code = http.StatusNotFound, "route_not_found"
				}
				caller := auth.Identity{Issuer: "https://issuer.example", Subject: "mallory", UserID: "u_1", Roles: []string{role}}
				t.Run(route.ID+", "+role, func(t *testing.T) {
					s := s.In(t)
					s.Untouched(func() {
						a := s.As(caller, f.Name, route.Method, path.Replace(route.Path), "{}", "Idempotency-Key: k1")
						system.WantProblem(t, a, status, code)
					})
				})
			}
		}
	}
	if checked < 12 {
		t.Errorf("only %d pairs of route and role were asked, want 12 and more", checked)
	}
}

// The gateway drops the statements that callers send.
func TestGatewayDropsStatements(t *testing.T) {
	t.Parallel()
	issuer := system.NewPeople(t)
	s := system.Start(t, "WAKES=false", "OIDC_ISSUER="+issuer.URL)
	signer, err := auth.NewSigner(s.Settings().IdentitySigningKey)
	kit.Must(t, err)
	// Even a valid one: somebody may have seen it.
	stolen, err := signer.Sign(auth.Call{Function: "entitlements", Method: http.MethodGet, Path: "/v1/users/u_1/entitlements"}, auth.Identity{Subject: "root", Roles: []string{auth.RoleOperator}})
	kit.Must(t, err)
	path, player := "/v1/users/u_1/entitlements", issuer.Player(t, "u_2")
	for _, headers := range [][]string{
		{auth.StatementHeader + ": " + stolen},
		{"miniserver-caller: " + stolen},
		{auth.StatementHeader + ": " + stolen, "Connection: " + auth.StatementHeader},
		{"X-User-ID: u_1", "X-User-Roles: operator", "X-Forwarded-User: u_1"},
		{"Connection: Authorization"},
	} {
		system.WantProblem(t, s.Call(http.MethodGet, path, player, "", headers...), http.StatusNotFound, "entitlement_not_found")
		system.WantProblem(t, s.Call(http.MethodGet, path, "", "", headers...), http.StatusUnauthorized, "token_missing")
	}
	// Nor does it reveal its own statement.
	a := s.Call(http.MethodGet, "/v1/me", player, "")
	system.WantStatus(t, a, http.StatusOK)
	for name := range a.Header {
		if strings.HasPrefix(strings.ToLower(name), "miniserver") {
			t.Errorf("the answer carries %s", name)
		}
	}
}

// The gateway does not serve internal routes, however their paths are spelled.
func TestInternalRoutes(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
	for _, path := range []string{
		"/tick", "/", "/relay/tick", "/v1/tick", "/v1/../tick", "/v1/%2e%2e/tick", "/v1/users/..%2f..%2ftick", "/tick/", "//tick", "/%74ick",
		"/cleanup", "/function/relay/tick", "/metrics", "/debug/pprof/", "/debug/vars",
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			a := s.Send(system.Request{Method: method, Path: path, Token: s.Operator, Header: http.Header{"Ce-ID": {"1"}}})
			if path == "/" && method == http.MethodGet {
				continue // the start page
			}
			if a.Status < 300 || a.Status >= 500 {
				t.Errorf("%s %s: answered %d %s, want 3xx or 4xx", method, path, a.Status, a.Body)
			}
		}
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'PENDING' AND attempt_count = 0`); n != 1 {
		t.Error("somebody ticked the relay from outside")
	}
}

// During a rotation, functions believe both keys; after it, only the new one.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	oldKey, oldPublic := s.Settings().IdentitySigningKey, s.Settings().IdentityVerifyKeys
	newKey, newPublic, err := auth.NewKeyPair()
	kit.Must(t, err)
	var both, added jose.JSONWebKeySet
	kit.Must(t, json.Unmarshal([]byte(oldPublic), &both))
	kit.Must(t, json.Unmarshal([]byte(newPublic), &added))
	both.Keys = append(both.Keys, added.Keys...)
	bothPublic, err := json.Marshal(both)
	kit.Must(t, err)

	for _, test := range []struct {
		name, verify string
		old, new     int
	}{
		{"before", oldPublic, 200, 401}, {"during", string(bothPublic), 200, 200}, {"after", newPublic, 401, 200},
	} {
		for key, status := range map[string]int{oldKey: test.old, newKey: test.new} {
			during := s.Another(func(own *settings.Settings) { own.IdentityVerifyKeys, own.IdentitySigningKey = test.verify, key })
			a := during.As(auth.Identity{Subject: "s_1", UserID: "u_1"}, "entitlements", http.MethodGet, "/v1/users/u_1/entitlements", "")
			if a.Status != status {
				t.Errorf("%s: answered %d, want %d", test.name, a.Status, status)
			}
		}
	}
}
