package functions_test

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
)

// What the attacks of this package found, and what was mended then.

// The issuer sends a logout token again until it is answered with 200. The second
// time it must end what the first time could not, because the store failed.
func TestAttackSignOutIsRepeatedAfterFailure(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice"})
	options, err := redis.ParseURL(s.redis.URL())
	must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	ctx := context.Background()
	index, err := client.Keys(ctx, "session:subject:*").Result()
	must(t, err)
	if len(index) != 1 {
		t.Fatalf("indexes %q", index)
	}
	// The store fails between noting the token and ending the sessions.
	must(t, client.Rename(ctx, index[0], "aside").Err())
	must(t, client.Set(ctx, index[0], "not an index", 0).Err())
	token := i.logoutToken(t, "", map[string]any{"sid": nil, "sub": "alice"})
	wantProblem(t, s.backChannel(token), http.StatusServiceUnavailable, "unavailable")
	must(t, client.Rename(ctx, "aside", index[0]).Err())

	wantStatus(t, s.backChannel(token), http.StatusOK)
	if s.opens(v.cookie("_session")) {
		t.Error("the issuer was told 200, and the session goes on")
	}
}

// A logout token is remembered for ten minutes, so that it works once; one that is
// good for longer, because it comes from the future, would work again.
func TestAttackLogoutTokenFromTheFuture(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	later := time.Now().Add(time.Hour)
	for name, change := range map[string]map[string]any{
		"issued in an hour": {"iat": later.Unix(), "exp": later.Add(time.Minute).Unix()},
		"valid in an hour":  {"nbf": later.Unix(), "exp": later.Add(time.Minute).Unix()},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			v := s.visitor()
			v.signIn(i, "/", signingIn{subject: "alice", sid: name})
			wantProblem(t, s.backChannel(i.logoutToken(t, name, change)), http.StatusBadRequest, "logout_token_invalid")
			if !s.opens(v.cookie("_session")) {
				t.Error("the session has ended")
			}
		})
	}
}

// An answer without a code came to nothing: it is the answer's fault, not an issuer
// that is away, and must not be logged as our failure. Anybody can make one.
func TestAttackAnswerWithoutCode(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	dev := startDevIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
	s := start(t, listener, append([]string{"OIDC_ISSUER=" + dev.URL()}, quiet...)...)
	for name, query := range map[string]url.Values{"no code": {}, "an empty code": {"code": {""}}} {
		t.Run(name, func(t *testing.T) {
			v := s.in(t).visitor()
			query.Set("state", v.begin("/").Get("state"))
			wantProblem(t, v.comeBack(query), http.StatusBadRequest, "sign_in_failed")
		})
	}
}

// A body that cannot be read is the sender's fault, on an internal route too.
func TestAttackInternalLinkBody(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	alice := auth.Identity{Issuer: i.url, Subject: "alice", UserID: s.userID(i.fresh(t, "alice", nil))}
	for _, body := range []string{"", "x", `[]`, `{"statement":1}`, `{"statement":"x","y":1}`, `{"statement":"x","statement":"x"}`} {
		a := s.as(alice, "account", http.MethodPost, account.LinkPath, body)
		if a.status < 400 || a.status >= 500 {
			t.Errorf("%s: %d", body, a.status)
		}
	}
}

// Two session cookies are as good as none, because one of them is planted. Who
// signs out with both is told that it was done, and no session may outlive that.
func TestAttackSignOutWithTwoCookies(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice"})
	cookies := "Cookie: " + v.cookieHeader() + "; miniserver_session=planted"
	if a := s.call(http.MethodPost, "/logout", "", "", cookies, csrf); a.status == http.StatusNoContent && s.opens(v.cookie("_session")) {
		t.Error("she was told that she is signed out, and the session goes on")
	}
}

// What stands behind # is the page's own, and comes back as it was.
func TestAttackReturnToFragment(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	for _, path := range []string{"/docs#part", "/#/shop/", "/#/a//b", "/#/a/../b", "/docs#a?b//c"} {
		if where := s.visitor().signIn(i, path, signingIn{subject: "alice"}); where != path {
			t.Errorf("%s became %s", path, where)
		}
	}
}
