package attack_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/system"
)

// Two identities become one account only if both were proven just now.
func TestAttackLinkByToken(t *testing.T) {
	t.Parallel()
	i, other := system.NewCodeIssuer(t), system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	now := time.Now()
	ago := func(d time.Duration) map[string]any { return map[string]any{"auth_time": now.Add(-d).Unix()} }
	refused := 0
	for name, test := range map[string]struct {
		first  map[string]any
		second func(subject string) string
		status int
		code   string
	}{
		"the first is stale":            {ago(6 * time.Minute), func(b string) string { return i.Fresh(t, b, nil) }, 403, "sign_in_stale"},
		"the first is of unknown age":   {map[string]any{"auth_time": nil}, func(b string) string { return i.Fresh(t, b, nil) }, 403, "sign_in_stale"},
		"the second is stale":           {nil, func(b string) string { return i.Fresh(t, b, ago(6*time.Minute)) }, 403, "sign_in_stale"},
		"the second is of unknown age":  {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"auth_time": nil}) }, 403, "sign_in_stale"},
		"the second is of the year 0":   {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"auth_time": 0}) }, 403, "sign_in_stale"},
		"the second, age negative":      {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"auth_time": -1}) }, 403, "sign_in_stale"},
		"new, but proven long ago":      {nil, func(b string) string { return i.Fresh(t, b, ago(24*time.Hour)) }, 403, "sign_in_stale"},
		"the second is no token":        {nil, func(string) string { return "x" }, 422, "second_token_invalid"},
		"the second is empty":           {nil, func(string) string { return "" }, 422, "request_invalid"},
		"the second has expired":        {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"exp": now.Add(-time.Second).Unix()}) }, 422, "second_token_invalid"},
		"the second is an ID token":     {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"typ": "ID", "aud": "miniserver-web"}) }, 422, "second_token_invalid"},
		"the second is another app's":   {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"azp": "evil-app"}) }, 422, "second_token_invalid"},
		"the second is for another API": {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"aud": "evil-api"}) }, 422, "second_token_invalid"},
		"the second of another issuer":  {nil, func(b string) string { return other.Fresh(t, b, nil) }, 422, "second_token_invalid"},
		"the second says it is ours":    {nil, func(b string) string { return other.Fresh(t, b, map[string]any{"iss": i.URL, "aud": "evil"}) }, 422, "second_token_invalid"},
		"the second has no subject":     {nil, func(b string) string { return i.Fresh(t, b, map[string]any{"sub": nil}) }, 422, "second_token_invalid"},
		"the second has alg none": {nil, func(b string) string {
			return system.Part(map[string]any{"alg": "none"}) + "." + system.Part(i.Claims(map[string]any{"sub": b, "auth_time": now.Unix()})) + "."
		}, 422, "second_token_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			first, second := "first of "+name, "second of "+name
			a := s.LinkToken(i.Fresh(t, first, test.first), test.second(second))
			system.WantProblem(t, a, test.status, test.code)
			if n := s.Count(`SELECT count(*) FROM account.identities WHERE subject = $1`, second); n != 0 {
				t.Error("the second identity is linked")
			}
			refused++
		})
	}

	t.Run("the same identity again is nothing", func(t *testing.T) {
		s := s.In(t)
		alice := i.Fresh(t, "same", nil)
		system.WantStatus(t, s.LinkToken(alice, alice), http.StatusOK)
		system.WantStatus(t, s.LinkToken(alice, i.Fresh(t, "same2", nil)), http.StatusOK)
		again := s.LinkToken(alice, i.Fresh(t, "same2", nil))
		system.WantStatus(t, again, http.StatusOK)
		if n := len(again.JSON(t)["identities"].([]any)); n != 2 {
			t.Errorf("%d identities, want 2", n)
		}
	})
	t.Run("an identity with an account stays there", func(t *testing.T) {
		s := s.In(t)
		alice, bob := i.Fresh(t, "alice", nil), i.Fresh(t, "bob", nil)
		aliceID, bobID := s.UserID(alice), s.UserID(bob)
		system.WantProblem(t, s.LinkToken(alice, bob), http.StatusConflict, "identity_taken")
		system.WantProblem(t, s.LinkToken(bob, alice), http.StatusConflict, "identity_taken")
		if s.UserID(alice) != aliceID || s.UserID(bob) != bobID || aliceID == bobID {
			t.Error("an identity changed its account")
		}
	})
	t.Run("ten are the most", func(t *testing.T) {
		s := s.In(t)
		for n := range 10 { // one exists already, and the quota is ten a minute
			a := s.LinkToken(i.Fresh(t, "many", nil), i.Fresh(t, fmt.Sprint("many", n), nil))
			if n < 9 {
				system.WantStatus(t, a, http.StatusOK)
			} else {
				system.WantProblem(t, a, http.StatusConflict, "too_many_identities")
			}
		}
		more := func() system.Answer { return s.LinkToken(i.Fresh(t, "many", nil), i.Fresh(t, "many0", nil)) }
		system.WantProblem(t, system.Flood(t, more), http.StatusTooManyRequests, "rate_limited")
	})
	t.Run("after it both are one", func(t *testing.T) {
		s := s.In(t)
		one, two := i.Fresh(t, "one", nil), i.Fresh(t, "two", map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
		user := s.UserID(one)
		linked := s.LinkToken(one, two)
		system.WantStatus(t, linked, http.StatusOK)
		if roles := fmt.Sprint(linked.JSON(t)["roles"]); roles != "[player]" {
			t.Errorf("linking gave the roles %s, want [player]", roles)
		}
		byOne, byTwo := s.Visitor(), s.Visitor()
		byOne.SignIn(i, "/", system.SigningIn{Subject: "one"})
		byTwo.SignIn(i, "/", system.SigningIn{Subject: "two"})
		if got := []string{s.UserID(one), s.UserID(two), byOne.Whoami(), byTwo.Whoami()}; got[0] != user || got[1] != user || got[2] != user || got[3] != user {
			t.Errorf("users %v, want all to be %s", got, user)
		}
		// The roles stay those of the identity that is presented.
		path := "/debug/notification/inbox/" + user
		system.WantProblem(t, s.Call(http.MethodGet, path, one, ""), http.StatusForbidden, "role_missing")
		system.WantStatus(t, s.Call(http.MethodGet, path, two, ""), http.StatusOK)
	})
}
