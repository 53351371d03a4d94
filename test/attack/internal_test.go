package attack_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/functions/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The account function links two identities only if the gateway vouches for both in
// statements made for it.
func TestAttackInternalLink(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	signer, err := auth.NewSigner(s.Settings().IdentitySigningKey)
	kit.Must(t, err)
	state := func(function string, identity auth.Identity) string {
		statement, err := signer.Sign(auth.Call{Function: function, Method: http.MethodPost, Path: account.LinkPath}, identity)
		kit.Must(t, err)
		return statement
	}
	secondOf := func(signer *auth.Signer, function string, identity auth.Identity) string {
		statement, err := signer.Sign(auth.Call{Function: function, Method: http.MethodPost, Path: account.SecondPath}, identity)
		kit.Must(t, err)
		return statement
	}
	private, _, err := auth.NewKeyPair()
	kit.Must(t, err)
	forger, err := auth.NewSigner(private)
	kit.Must(t, err)
	aliceToken := i.Fresh(t, "alice", nil)
	alice := auth.Identity{Issuer: i.URL, Subject: "alice", UserID: s.UserID(aliceToken)}
	bob := auth.Identity{Issuer: i.URL, Subject: "bob"}
	first, second := state("account", alice), secondOf(signer, "account", bob)
	forged, err := forger.Sign(auth.Call{Function: "account", Method: http.MethodPost, Path: account.LinkPath}, alice)
	kit.Must(t, err)
	pieces := strings.Split(second, ".")
	var key jose.JSONWebKey
	kit.Must(t, json.Unmarshal([]byte(s.Settings().IdentitySigningKey), &key))
	unsigned := system.Part(map[string]any{"alg": "none", "kid": key.KeyID}) + "." + pieces[1] + "."
	for name, test := range map[string]struct {
		first, second string
		status        int
	}{
		"neither":                      {"", "", 401},
		"no first":                     {"", second, 401},
		"no second":                    {first, "", 401},
		"the first is forged":          {forged, second, 401},
		"the second is forged":         {first, secondOf(forger, "account", bob), 401},
		"the first for another":        {state("grant", alice), second, 401},
		"the second for another":       {first, secondOf(signer, "gateway", bob), 401},
		"the second for the wrong one": {first, secondOf(signer, "inbox", bob), 401},
		"the second is a caller's":     {first, state("account", bob), 401},
		"the first is a second":        {secondOf(signer, "account", alice), second, 401},
		"the second is a token":        {first, i.Fresh(t, "bob", nil), 401},
		"the first is a token":         {aliceToken, second, 401},
		"the second has no signature":  {first, pieces[0] + "." + pieces[1] + ".", 401},
		"the second has alg none":      {first, unsigned, 401},
		"the second is garbage":        {first, "x", 401},
		"nobody's account":             {state("account", auth.Identity{Issuer: i.URL, Subject: "carol"}), second, 404},
		"an account that is not there": {state("account", auth.Identity{Issuer: i.URL, Subject: "carol", UserID: system.UnusedID(alice.UserID)}), second, 404},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			var headers []string
			if test.first != "" {
				headers = []string{auth.StatementHeader + ": " + test.first}
			}
			system.WantProblem(t, s.Direct("account", http.MethodPost, account.LinkPath, `{"statement":"`+test.second+`"}`, headers...), test.status, "")
			if n := s.Count(`SELECT count(*) FROM account.identities`); n != 1 {
				t.Errorf("%d identities, want 1", n)
			}
		})
	}
	// The same two without a flaw are linked, so each was refused for its own flaw.
	linked := s.Direct("account", http.MethodPost, account.LinkPath, `{"statement":"`+second+`"}`, auth.StatementHeader+": "+first)
	system.WantStatus(t, linked, http.StatusOK)
	if n := s.Count(`SELECT count(*) FROM account.identities`); n != 2 {
		t.Errorf("%d identities, want 2", n)
	}
}

// The internal route is not reachable from outside, however its path is spelled.
func TestAttackInternalLinkFromOutside(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	signer, err := auth.NewSigner(s.Settings().IdentitySigningKey)
	kit.Must(t, err)
	alice := i.Fresh(t, "alice", nil)
	// The statements are valid: somebody may have seen them.
	first, err := signer.Sign(auth.Call{Function: "account", Method: http.MethodPost, Path: account.LinkPath}, auth.Identity{Issuer: i.URL, Subject: "alice", UserID: s.UserID(alice)})
	kit.Must(t, err)
	second, err := signer.Sign(auth.Call{Function: "account", Method: http.MethodPost, Path: account.SecondPath}, auth.Identity{Issuer: i.URL, Subject: "bob"})
	kit.Must(t, err)
	body := `{"statement":"` + second + `"}`
	for _, path := range []string{
		"/identities", "/identities/", "//identities", "/./identities", "/%69dentities", "/Identities", "/IDENTITIES", "/identities?x=1", "/identities;x=1", "/identities%2f", "/%2fidentities",
		"/account/identities", "/function/account/identities", "/v1/identities", "/v1/../identities", "/v1/%2e%2e/identities", "/v1/me/..%2f..%2fidentities", "/v1/me/../../identities",
		"/v1/me/identities/../../../identities", "/v1/users/..%2f..%2fidentities", "/v1/me/notifications/..%2f..%2f..%2f..%2fidentities/read", "/v1/me/notifications/..%2f..%2f..%2fidentities%3f/read",
		`/v1/me/..\..\identities`, "/identities%00", "/identities%20", "/identities.json",
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodGet} {
			a := s.Call(method, path, alice, body, auth.StatementHeader+": "+first)
			system.WantProblem(t, a, a.Status, "")
			// An error code of the function would mean that the request reached it.
			if code := a.JSON(t)["code"]; !slices.Contains([]any{"route_not_found", "method_not_allowed", "url_invalid", "notification_not_found", "request_invalid"}, code) {
				t.Errorf("%s %s: answered %d %s, want a code of the gateway", method, path, a.Status, a.Body)
			}
		}
	}
	address := strings.TrimPrefix(s.URL, "http://")
	for name, head := range map[string]string{
		"another host":         "POST /identities HTTP/1.1\r\nHost: account",
		"a whole URL":          "POST http://account/identities HTTP/1.1\r\nHost: account",
		"a whole URL, of ours": "POST " + s.URL + "/identities HTTP/1.1\r\nHost: " + address,
		"forwarded to":         "POST /v1/me HTTP/1.1\r\nHost: " + address + "\r\nX-Original-URL: /identities\r\nX-Rewrite-URL: /identities\r\nX-Forwarded-Host: account\r\nX-Forwarded-Prefix: /identities",
	} {
		conn, err := net.Dial("tcp", address)
		kit.Must(t, err)
		_, err = fmt.Fprintf(conn, "%s\r\nAuthorization: Bearer %s\r\n%s: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			head, alice, auth.StatementHeader, first, len(body), body)
		kit.Must(t, err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		kit.Must(t, err)
		if a := s.Read(response, nil); a.Status != http.StatusNotFound && name != "forwarded to" {
			t.Errorf("%s: answered %d %s, want 404", name, a.Status, a.Body)
		}
		_ = conn.Close()
	}
	if n := s.Count(`SELECT count(*) FROM account.identities WHERE subject = 'bob'`); n != 0 {
		t.Error("bob's identity is linked")
	}
}
