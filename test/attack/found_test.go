package attack_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Each test here is for a fault that the attacks of this package found.

// The issuer repeats a logout token until it is answered 200. The repetition must end the
// sessions that the first could not, because the store failed.
func TestAttackSignOutIsRepeatedAfterFailure(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	options, err := redis.ParseURL(s.Redis.URL())
	kit.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	ctx := context.Background()
	index, err := client.Keys(ctx, "session:subject:*").Result()
	kit.Must(t, err)
	if len(index) != 1 {
		t.Fatalf("%d indexes, want 1: %q", len(index), index)
	}
	// The store fails between noting the token and ending the sessions.
	kit.Must(t, client.Rename(ctx, index[0], "aside").Err())
	kit.Must(t, client.Set(ctx, index[0], "not an index", 0).Err())
	token := i.LogoutToken(t, "", map[string]any{"sid": nil, "sub": "alice"})
	system.WantProblem(t, s.BackChannel(token), http.StatusServiceUnavailable, "unavailable")
	kit.Must(t, client.Rename(ctx, "aside", index[0]).Err())

	system.WantStatus(t, s.BackChannel(token), http.StatusOK)
	if s.Opens(v.Cookie("_session")) {
		t.Error("the issuer was answered 200, but the session is still open")
	}
}

// A logout token is remembered for ten minutes, so that it works once; one from the
// future is valid for longer, and would work again.
func TestAttackLogoutTokenFromTheFuture(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	later := time.Now().Add(time.Hour)
	for name, change := range map[string]map[string]any{
		"issued in an hour": {"iat": later.Unix(), "exp": later.Add(time.Minute).Unix()},
		"valid in an hour":  {"nbf": later.Unix(), "exp": later.Add(time.Minute).Unix()},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			v := s.Visitor()
			v.SignIn(i, "/", system.SigningIn{Subject: "alice", Sid: name})
			system.WantProblem(t, s.BackChannel(i.LogoutToken(t, name, change)), http.StatusBadRequest, "logout_token_invalid")
			if !s.Opens(v.Cookie("_session")) {
				t.Error("the session has ended")
			}
		})
	}
}

// An answer without a code is a bad request, not an issuer that is away, and must not be
// logged as our failure: anybody can send one.
func TestAttackAnswerWithoutCode(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	dev := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
	s := system.StartOn(t, listener, append([]string{"OIDC_ISSUER=" + dev.URL()}, system.Quiet...)...)
	for name, query := range map[string]url.Values{"no code": {}, "an empty code": {"code": {""}}} {
		t.Run(name, func(t *testing.T) {
			v := s.In(t).Visitor()
			query.Set("state", v.Begin("/").Get("state"))
			system.WantProblem(t, v.ComeBack(query), http.StatusBadRequest, "sign_in_failed")
		})
	}
}

// An unreadable body is the sender's fault, also on an internal route.
func TestAttackInternalLinkBody(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	alice := auth.Identity{Issuer: i.URL, Subject: "alice", UserID: s.UserID(i.Fresh(t, "alice", nil))}
	for _, body := range []string{"", "x", `[]`, `{"statement":1}`, `{"statement":"x","y":1}`, `{"statement":"x","statement":"x"}`} {
		a := s.As(alice, "account", http.MethodPost, account.LinkPath, body)
		if a.Status < 400 || a.Status >= 500 {
			t.Errorf("%s: answered %d, want 4xx", body, a.Status)
		}
	}
}

// Two session cookies count as none, because one of them is planted. If a sign-out with
// both succeeds, neither session may stay open.
func TestAttackSignOutWithTwoCookies(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	cookies := "Cookie: " + v.CookieHeader() + "; miniserver_session=planted"
	if a := s.Call(http.MethodPost, "/logout", "", "", cookies, system.CSRF); a.Status == http.StatusNoContent && s.Opens(v.Cookie("_session")) {
		t.Error("the sign-out answered 204, but the session is still open")
	}
}

// The part after # belongs to the page, and comes back unchanged.
func TestAttackReturnToFragment(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	for _, path := range []string{"/docs#part", "/#/shop/", "/#/a//b", "/#/a/../b", "/docs#a?b//c"} {
		if where := s.Visitor().SignIn(i, path, system.SigningIn{Subject: "alice"}); where != path {
			t.Errorf("%s became %s", path, where)
		}
	}
}
