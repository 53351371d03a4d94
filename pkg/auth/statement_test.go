package auth_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

func pair(t testing.TB, function string) (*auth.Signer, *auth.Verifier) {
	t.Helper()
	private, public, err := auth.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := auth.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := auth.NewVerifier(function, public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

// The function reads the identity that the gateway stated. No other function accepts the
// statement, nor another method or path.
func TestStatement(t *testing.T) {
	t.Parallel()
	signer, verifier := pair(t, "grant")
	call := auth.Call{Function: "grant", Method: "POST", Path: "/v1/entitlements/grants"}
	for _, want := range []auth.Identity{
		{Subject: "u_1"},
		{Subject: "u_1", Client: "web", Roles: []string{"player"}},
		{Subject: "日本語 \" \\ /", Client: "c", Roles: []string{"a", "b c", ""}},
	} {
		for range 2 { // the second time both sides use their caches
			statement, err := signer.Sign(call, want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := verifier.Verify(statement, call.Method, call.Path)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v became %+v, %v", want, got, err)
			}
		}
		for name, other := range map[string]auth.Call{
			"another function": {Function: "revoke", Method: call.Method, Path: call.Path},
			"another method":   {Function: "grant", Method: "GET", Path: call.Path},
			"no method":        {Function: "grant", Path: call.Path},
			"another path":     {Function: "grant", Method: call.Method, Path: call.Path + "/x"},
			"no path":          {Function: "grant", Method: call.Method},
			"method and path":  {Function: "grant", Path: call.Method + call.Path},
		} {
			statement, err := signer.Sign(other, want)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time it is in the cache
				if got, err := verifier.Verify(statement, call.Method, call.Path); !errors.Is(err, auth.ErrStatement) {
					t.Errorf("a statement for %s says %+v, %v, want ErrStatement", name, got, err)
				}
			}
		}
	}
	// A statement without a subject is refused.
	statement, err := signer.Sign(call, auth.Identity{Roles: []string{auth.RoleOperator}})
	if err == nil {
		if got, err := verifier.Verify(statement, call.Method, call.Path); !errors.Is(err, auth.ErrStatement) {
			t.Errorf("a statement without a subject: %+v, %v; want ErrStatement", got, err)
		}
	}
}

// A statement from the cache is never that of another, similar identity.
func TestStatementsAreNotMixedUp(t *testing.T) {
	t.Parallel()
	signer, verifier := pair(t, "f")
	identities := []auth.Identity{
		{Subject: "a"},
		{Subject: "b"},
		{Subject: "a", Client: "b"},
		{Subject: "a", Roles: []string{"b"}},
		{Subject: "a", Client: "b", Roles: []string{"c"}},
		{Subject: "a", Roles: []string{"b", "c"}},
		{Subject: "a", Roles: []string{"c", "b"}},
		{Subject: "a", Roles: []string{"b c"}},
		// Names come from foreign issuers and may hold anything that JSON can.
		{Subject: "a\x00b"},
		{Subject: "a", Client: "b\x00c"},
		{Subject: "a\x00b", Client: "c"},
		{Subject: "a", Roles: []string{"b\x00c"}},
		{Subject: "a", Client: "x\x00operator"},
		{Subject: "a", Client: "x", Roles: []string{"operator", ""}},
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for _, want := range identities {
				statement, err := signer.Sign(auth.Call{Function: "f"}, want)
				if err != nil {
					t.Error(err)
					continue
				}
				if got, err := verifier.Verify(statement, "", ""); err != nil || got.Subject != want.Subject || got.Client != want.Client || fmt.Sprintf("%q", got.Roles) != fmt.Sprintf("%q", want.Roles) {
					t.Errorf("%q became %q, %v", want, got, err)
				}
			}
		})
	}
	group.Wait()
}

// A key that cannot be used is an error at the start, which does not show the key.
func TestBadKeys(t *testing.T) {
	t.Parallel()
	private, public, err := auth.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	var jwk jose.JSONWebKey
	if err := json.Unmarshal([]byte(private), &jwk); err != nil {
		t.Fatal(err)
	}
	text := func(v any) string {
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	nameless := jwk
	nameless.KeyID = ""
	for name, key := range map[string]string{
		"empty": "", "garbage": "planted-secret", "public": text(jwk.Public()), "a set": public, "without kid": text(nameless),
		"RSA": text(jose.JSONWebKey{Key: rsaKey, KeyID: "k"}), "symmetric": text(jose.JSONWebKey{Key: []byte("planted-secret-planted-secret!!!"), KeyID: "k"}),
	} {
		_, err := auth.NewSigner(key)
		if err == nil {
			t.Errorf("%s: accepted as a key to sign with", name)
		} else if strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "IDENTITY_SIGNING_KEY") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, keys := range map[string]string{
		"empty": "", "garbage": "x", "no keys": `{"keys":[]}`, "one key": text(jwk.Public()),
		"a private key": text(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{jwk}}),
		"RSA":           text(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &rsaKey.PublicKey, KeyID: "k"}}}),
		"symmetric":     text(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: []byte("planted-secret-planted-secret!!!"), KeyID: "k"}}}),
	} {
		if _, err := auth.NewVerifier("f", keys); err == nil {
			t.Errorf("%s: accepted as keys to verify with", name)
		}
	}
	// The public set holds no private part.
	if strings.Contains(public, `"d"`) {
		t.Error("the public set has a private key in it")
	}
}

func FuzzVerify(f *testing.F) {
	signer, verifier := pair(f, "grant")
	statement, err := signer.Sign(auth.Call{Function: "revoke"}, auth.Identity{Subject: "u"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "a.b.c", statement, strings.TrimRight(statement, "="), "e30.e30."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, statement string) {
		if identity, err := verifier.Verify(statement, "", ""); err == nil {
			t.Errorf("%q is accepted as %+v", statement, identity)
		}
	})
}

// BenchmarkStatement measures a request whose statement is new to both sides, and one
// whose statement is in their caches.
func BenchmarkStatement(b *testing.B) {
	signer, verifier := pair(b, "f")
	caller := auth.Identity{Issuer: "https://issuer.example", Subject: "s", UserID: "u_01m7xt0gc7ee4r5abt41e1a706", Client: "web", Roles: []string{auth.RolePlayer}}
	for name, path := range map[string]func(int) string{
		"new":   func(n int) string { return fmt.Sprint("/v1/tickets/", n) },
		"known": func(int) string { return "/v1/me" },
	} {
		b.Run(name, func(b *testing.B) {
			for n := range b.N {
				statement, err := signer.Sign(auth.Call{Function: "f", Method: "GET", Path: path(n)}, caller)
				if err == nil {
					_, err = verifier.Verify(statement, "GET", path(n))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Callers choose paths before any function looks at them: long ones fill no memory.
func TestLongPathsAreNotRemembered(t *testing.T) { // not parallel: what other tests allocate would count
	const paths, most = 2_000, 10 << 20
	signer, verifier := pair(t, "ticket")
	before := heap()
	for i := range paths {
		path := fmt.Sprint("/v1/matchmaking/tickets/", i, strings.Repeat("x", 15<<10))
		statement, err := signer.Sign(auth.Call{Function: "ticket", Method: "GET", Path: path}, auth.Identity{Subject: "u_1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verifier.Verify(statement, "GET", path); err != nil {
			t.Fatal(err)
		}
	}
	if more := heap() - before; more > most {
		t.Errorf("%d statements for long paths keep %d MiB, want %d at most", paths, more>>20, most>>20)
	}
	runtime.KeepAlive(signer)
	runtime.KeepAlive(verifier)
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
