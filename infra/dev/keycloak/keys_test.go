//go:build keycloak

package keycloak

import (
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

func TestRotateKeys(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	access := func() string {
		config := clientcredentials.Config{ClientID: issuer.OpsClientID, ClientSecret: issuer.OpsClientSecret, TokenURL: keycloak.provider.Endpoint().TokenURL}
		token, err := config.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return token.AccessToken
	}
	keyOf := func(raw string) string {
		token, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{jose.RS256})
		if err != nil {
			t.Fatal(err)
		}
		return token.Signatures[0].Header.KeyID
	}
	before := access()
	verifier := keycloak.provider.Verifier(&oidc.Config{ClientID: issuer.DefaultAudience})
	if _, err := verifier.Verify(t.Context(), before); err != nil { // it knows the keys now
		t.Fatal(err)
	}
	if err := shared.keycloak.RotateKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := access()
	if keyOf(after) == keyOf(before) {
		t.Error("the key is the same")
	}
	for name, token := range map[string]string{"before": before, "after": after} {
		if _, err := verifier.Verify(t.Context(), token); err != nil {
			t.Errorf("verify the token %s the rotation: %v", name, err)
		}
	}
}
