package auth_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/test/kit"
)

// away is an issuer that can be switched off: discovery, keys or both.
type away struct {
	*httptest.Server
	key             *rsa.PrivateKey
	discovery, keys atomic.Bool
}

func newIssuer(t testing.TB) *away {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a := &away{key: key}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/.well-known/openid-configuration" && !a.discovery.Load():
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": a.URL, "jwks_uri": a.URL + "/keys"})
		case r.URL.Path == "/keys" && !a.keys.Load():
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k1", Algorithm: "RS256"}}})
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *away) request(t testing.TB, subject string) *http.Request {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: a.key, KeyID: "k1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": a.URL, "sub": subject, "aud": "miniserver", "exp": time.Now().Add(time.Minute).Unix(), "typ": "Bearer", "azp": "web",
		"realm_access": map[string]any{"roles": []string{"player"}},
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// While the issuer cannot be reached callers get Unavailable, not 401; when it is back,
// their tokens are accepted.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	issuer := newIssuer(t)
	bearer := auth.NewBearer(auth.NewIssuer(issuer.URL), "miniserver", nil)
	want := func(subject string, kind fault.Kind) {
		t.Helper()
		identity, err := bearer.Identify(issuer.request(t, subject))
		if kind == fault.Internal { // none
			// An issuer that was away is asked again after a second, not by every caller.
			kit.Within(t, 5*time.Second, "the issuer is asked again", func() bool {
				identity, err = bearer.Identify(issuer.request(t, subject))
				return err == nil
			})
			if identity.Subject != subject || identity.Client != "web" || !identity.Has(auth.RolePlayer) {
				t.Errorf("identified %+v, %v; want %s as a player of web", identity, err, subject)
			}
			return
		}
		if fault.Of(err) != kind {
			t.Errorf("Identify: %v, want kind %v", err, kind)
		}
	}
	issuer.discovery.Store(true)
	want("u_1", fault.Unavailable)
	issuer.discovery.Store(false)
	issuer.keys.Store(true)
	want("u_2", fault.Unavailable)
	issuer.keys.Store(false)
	want("u_2", fault.Internal)
	issuer.discovery.Store(true)
	issuer.keys.Store(true)
	want("u_3", fault.Internal) // the keys are known
}

// Without a token, or with text that is none, the issuer is not asked.
func TestNoTokenAsksNobody(t *testing.T) {
	t.Parallel()
	bearer := auth.NewBearer(auth.NewIssuer("http://127.0.0.1:1"), "miniserver", nil)
	for authorization, want := range map[string]error{"": auth.ErrNoToken, "Basic YTpi": auth.ErrBadToken, "Bearer": auth.ErrBadToken, "Bearer ": auth.ErrBadToken} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		if _, err := bearer.Identify(r); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", authorization, err, want)
		}
	}
}

// No header makes a caller but one that carries a token of the issuer, whole.
func FuzzIdentify(f *testing.F) {
	issuer := newIssuer(f)
	bearer := auth.NewBearer(auth.NewIssuer(issuer.URL), "miniserver", nil)
	good := issuer.request(f, "u_1").Header.Get("Authorization")
	if _, err := bearer.Identify(issuer.request(f, "u_1")); err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{good, strings.ToLower(good[:6]) + good[6:], good + "=", good + " ", " " + good, good[:len(good)-1], "Bearer e30.e30.", "Bearer a.b.c.d.e", "Basic YTpi"} {
		f.Add(text)
	}
	_, token, _ := strings.Cut(good, " ")
	f.Fuzz(func(t *testing.T, authorization string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", authorization)
		access, err := bearer.Identify(r)
		switch scheme, sent, _ := strings.Cut(authorization, " "); {
		case err == nil && (sent != token || !strings.EqualFold(scheme, "bearer") || access.Subject != "u_1"):
			t.Errorf("%q is accepted, as %+v", authorization, access)
		case err != nil && fault.Of(err) != fault.Unauthenticated:
			t.Errorf("%q: %v", authorization, err)
		}
	})
}

// An issuer that hangs holds up no caller beyond the caller's own deadline, however many
// wait: all share one request to the issuer, which belongs to none of them.
func TestIssuerHangs(t *testing.T) {
	t.Parallel()
	const callers, patience = 50, 200 * time.Millisecond
	var asked atomic.Int64
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(hanging.CloseClientConnections)
	bearer := auth.NewBearer(auth.NewIssuer(hanging.URL), "miniserver", nil)
	token := newIssuer(t).request(t, "u_1")
	waited := make(chan time.Duration, callers)
	for range callers {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			if _, err := bearer.Identify(token.WithContext(ctx)); fault.Of(err) != fault.Unavailable {
				t.Errorf("%v, want fault.Unavailable", err)
			}
			waited <- time.Since(began)
		}()
	}
	var longest time.Duration
	for range callers {
		longest = max(longest, <-waited)
	}
	t.Logf("the longest of %d callers waited %s", callers, longest)
	if longest > 10*patience {
		t.Errorf("a caller with %s to wait waited %s behind an issuer that hangs", patience, longest)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times, want once for all", n)
	}
}

// A client that sends a wrong token again and again costs no verification of its signature
// each time, and gets the same answer.
func TestWrongTokenIsVerifiedOnce(t *testing.T) { // not parallel: what other tests allocate would count
	issuer := newIssuer(t)
	bearer := auth.NewBearer(auth.NewIssuer(issuer.URL), "miniserver", nil)
	wrong := issuer.request(t, "u_1")
	mine, yours := strings.Split(wrong.Header.Get("Authorization"), "."), strings.Split(issuer.request(t, "u_2").Header.Get("Authorization"), ".")
	wrong.Header.Set("Authorization", mine[0]+"."+mine[1]+"."+yours[2])
	check := func() {
		if _, err := bearer.Identify(wrong); fault.Of(err) != fault.Unauthenticated {
			t.Errorf("%v, want %v", err, auth.ErrBadToken)
		}
	}
	check()
	const most = 5 // a verification has a hundred
	if n := testing.AllocsPerRun(100, check); n > most {
		t.Errorf("%.0f allocations for a token that was refused a moment ago, want %d at most", n, most)
	}
}
