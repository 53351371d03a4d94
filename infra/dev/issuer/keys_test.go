package issuer_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	before := r.tokens(t, "alice").AccessToken
	if err := r.RotateKey(); err != nil {
		t.Fatal(err)
	}
	after := r.tokens(t, "alice").AccessToken
	if segment(t, before, 0)["kid"] == segment(t, after, 0)["kid"] {
		t.Error("the key is the same")
	}
	// A client that starts now, and one that has cached the old keys.
	fresh, err := oidc.NewProvider(t.Context(), r.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{before, after} {
		r.verify(t, token, issuer.DefaultAudience)
		if _, err := fresh.Verifier(&oidc.Config{ClientID: issuer.DefaultAudience}).Verify(t.Context(), token); err != nil {
			t.Error(err)
		}
		if got := r.userinfoStatus(t, token); got != http.StatusOK {
			t.Errorf("userinfo: %d, want 200", got)
		}
	}
}

func TestKeysSurviveRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	first := newRealm(t, issuer.Options{KeyDir: dir})
	old := first.tokens(t, "alice").AccessToken
	if err := first.RotateKey(); err != nil {
		t.Fatal(err)
	}
	recent := first.tokens(t, "alice").AccessToken

	second := newRealm(t, issuer.Options{KeyDir: dir})
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if err := second.provider.Claims(&document); err != nil {
		t.Fatal(err)
	}
	keys := oidc.NewRemoteKeySet(t.Context(), document.Keys)
	for _, token := range []string{old, recent} {
		// Only the address differs between the two.
		verifier := oidc.NewVerifier(first.url, keys, &oidc.Config{ClientID: issuer.DefaultAudience})
		if _, err := verifier.Verify(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	fresh := second.tokens(t, "alice").AccessToken
	if segment(t, fresh, 0)["kid"] != segment(t, recent, 0)["kid"] {
		t.Error("the restart made another key")
	}

	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v; want one file", files, err)
	}
	info, err := files[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v; want 0600", info.Mode(), err)
	}
}

func TestBrokenKeyFile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "{}", `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "signing-keys.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := issuer.New(issuer.Options{KeyDir: dir}); err == nil {
			t.Errorf("%q was accepted", content)
		}
	}
}
