package functions_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// linkToken links the identity of second to the account of first.
func (s *system) linkToken(first, second string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, "/v1/me/identities", first, `{"access_token":"`+second+`"}`)
}

// Two identities become one account when both were proven just now, and at no
// other time.
func TestAttackLinkByToken(t *testing.T) {
	t.Parallel()
	i, other := newCodeIssuer(t), newCodeIssuer(t)
	s := startAt(t, i)
	now := time.Now()
	ago := func(d time.Duration) map[string]any { return map[string]any{"auth_time": now.Add(-d).Unix()} }
	refused := 0
	for name, test := range map[string]struct {
		first  map[string]any
		second func(subject string) string
		status int
		code   string
	}{
		"the first is stale":            {ago(6 * time.Minute), func(b string) string { return i.fresh(t, b, nil) }, 403, "sign_in_stale"},
		"the first is of unknown age":   {map[string]any{"auth_time": nil}, func(b string) string { return i.fresh(t, b, nil) }, 403, "sign_in_stale"},
		"the second is stale":           {nil, func(b string) string { return i.fresh(t, b, ago(6*time.Minute)) }, 403, "sign_in_stale"},
		"the second is of unknown age":  {nil, func(b string) string { return i.fresh(t, b, map[string]any{"auth_time": nil}) }, 403, "sign_in_stale"},
		"the second is of the year 0":   {nil, func(b string) string { return i.fresh(t, b, map[string]any{"auth_time": 0}) }, 403, "sign_in_stale"},
		"the second, age negative":      {nil, func(b string) string { return i.fresh(t, b, map[string]any{"auth_time": -1}) }, 403, "sign_in_stale"},
		"new, but proven long ago":      {nil, func(b string) string { return i.fresh(t, b, ago(24*time.Hour)) }, 403, "sign_in_stale"},
		"the second is no token":        {nil, func(string) string { return "x" }, 422, "second_token_invalid"},
		"the second is empty":           {nil, func(string) string { return "" }, 422, "request_invalid"},
		"the second has expired":        {nil, func(b string) string { return i.fresh(t, b, map[string]any{"exp": now.Add(-time.Second).Unix()}) }, 422, "second_token_invalid"},
		"the second is an ID token":     {nil, func(b string) string { return i.fresh(t, b, map[string]any{"typ": "ID", "aud": "miniserver-web"}) }, 422, "second_token_invalid"},
		"the second is another app's":   {nil, func(b string) string { return i.fresh(t, b, map[string]any{"azp": "evil-app"}) }, 422, "second_token_invalid"},
		"the second is for another API": {nil, func(b string) string { return i.fresh(t, b, map[string]any{"aud": "evil-api"}) }, 422, "second_token_invalid"},
		"the second of another issuer":  {nil, func(b string) string { return other.fresh(t, b, nil) }, 422, "second_token_invalid"},
		"the second says it is ours":    {nil, func(b string) string { return other.fresh(t, b, map[string]any{"iss": i.url, "aud": "evil"}) }, 422, "second_token_invalid"},
		"the second has no subject":     {nil, func(b string) string { return i.fresh(t, b, map[string]any{"sub": nil}) }, 422, "second_token_invalid"},
		"the second has alg none": {nil, func(b string) string {
			return part(map[string]any{"alg": "none"}) + "." + part(i.claims(map[string]any{"sub": b, "auth_time": now.Unix()})) + "."
		}, 422, "second_token_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			first, second := "first of "+name, "second of "+name
			a := s.linkToken(i.fresh(t, first, test.first), test.second(second))
			wantProblem(t, a, test.status, test.code)
			if n := s.count(`SELECT count(*) FROM account.identities WHERE subject = $1`, second); n != 0 {
				t.Error("it is linked")
			}
			refused++
		})
	}

	t.Run("the same identity again is nothing", func(t *testing.T) {
		s := s.in(t)
		alice := i.fresh(t, "same", nil)
		wantStatus(t, s.linkToken(alice, alice), http.StatusOK)
		wantStatus(t, s.linkToken(alice, i.fresh(t, "same2", nil)), http.StatusOK)
		again := s.linkToken(alice, i.fresh(t, "same2", nil))
		wantStatus(t, again, http.StatusOK)
		if n := len(again.json(t)["identities"].([]any)); n != 2 {
			t.Errorf("%d identities", n)
		}
	})
	t.Run("an identity with an account stays there", func(t *testing.T) {
		s := s.in(t)
		alice, bob := i.fresh(t, "alice", nil), i.fresh(t, "bob", nil)
		aliceID, bobID := s.userID(alice), s.userID(bob)
		wantProblem(t, s.linkToken(alice, bob), http.StatusConflict, "identity_taken")
		wantProblem(t, s.linkToken(bob, alice), http.StatusConflict, "identity_taken")
		if s.userID(alice) != aliceID || s.userID(bob) != bobID || aliceID == bobID {
			t.Error("somebody is somebody else now")
		}
	})
	t.Run("ten are the most", func(t *testing.T) {
		s := s.in(t)
		for n := range 10 { // one is there before, and ten a minute are its quota
			a := s.linkToken(i.fresh(t, "many", nil), i.fresh(t, fmt.Sprint("many", n), nil))
			if n < 9 {
				wantStatus(t, a, http.StatusOK)
			} else {
				wantProblem(t, a, http.StatusConflict, "too_many_identities")
			}
		}
		more := func() answer { return s.linkToken(i.fresh(t, "many", nil), i.fresh(t, "many0", nil)) }
		wantProblem(t, flood(t, more), http.StatusTooManyRequests, "rate_limited")
	})
	t.Run("after it both are one", func(t *testing.T) {
		s := s.in(t)
		one, two := i.fresh(t, "one", nil), i.fresh(t, "two", map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
		user := s.userID(one)
		linked := s.linkToken(one, two)
		wantStatus(t, linked, http.StatusOK)
		if roles := fmt.Sprint(linked.json(t)["roles"]); roles != "[player]" {
			t.Errorf("linking gave the roles %s", roles)
		}
		byOne, byTwo := s.visitor(), s.visitor()
		byOne.signIn(i, "/", signingIn{subject: "one"})
		byTwo.signIn(i, "/", signingIn{subject: "two"})
		if got := []string{s.userID(one), s.userID(two), byOne.whoami(), byTwo.whoami()}; got[0] != user || got[1] != user || got[2] != user || got[3] != user {
			t.Errorf("%v are not all %s", got, user)
		}
		// The roles stay those of the identity that is there.
		path := "/debug/notification/inbox/" + user
		wantProblem(t, s.call(http.MethodGet, path, one, ""), http.StatusForbidden, "role_missing")
		wantStatus(t, s.call(http.MethodGet, path, two, ""), http.StatusOK)
	})
}
