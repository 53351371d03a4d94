//go:build keycloak

package keycloak

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

// notCompared are claims that only one issuer has: nothing reads nbf, amr, or the jti of
// an ID token; auth_time is in every ID token, and in Keycloak's access tokens as well.
var notCompared = map[string][]string{"Bearer": {"nbf"}, "ID": {"amr", "jti"}}

// claims verifies a token as its audience would, and returns its claims in a form that
// can be compared: times and ids as their kinds, lists in order.
func (r realm) claims(t *testing.T, raw, audience string) map[string]any {
	t.Helper()
	token, err := r.provider.Verifier(&oidc.Config{ClientID: audience}).Verify(t.Context(), raw)
	if err != nil {
		t.Fatalf("verify a token of %s: %v", r.url, err)
	}
	var got map[string]any
	if err := token.Claims(&got); err != nil {
		t.Fatal(err)
	}
	got["lifetime"] = got["exp"].(float64) - got["iat"].(float64)
	got["aud"] = token.Audience
	for _, claim := range []string{"exp", "iat", "auth_time", "jti", "sid", "at_hash"} {
		if got[claim] != nil {
			got[claim] = fmt.Sprintf("%T", got[claim])
		}
	}
	if scope, ok := got["scope"].(string); ok {
		got["scope"] = slices.Sorted(slices.Values(strings.Fields(scope)))
	}
	if access, ok := got["realm_access"].(map[string]any); ok {
		roles := access["roles"].([]any)
		slices.SortFunc(roles, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	}
	if got["iss"] != r.url {
		t.Errorf("iss = %v", got["iss"])
	}
	delete(got, "iss")
	return got
}

func wantSame(t *testing.T, what string, keycloak, develop map[string]any) {
	t.Helper()
	for _, claim := range notCompared[fmt.Sprint(develop["typ"])] {
		delete(keycloak, claim)
		delete(develop, claim)
	}
	if !reflect.DeepEqual(keycloak, develop) {
		t.Errorf("%s:\n Keycloak    %v\n development %v", what, keycloak, develop)
	}
}

func idToken(t *testing.T, token *oauth2.Token) string {
	t.Helper()
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		t.Fatal("no ID token")
	}
	return raw
}

func TestServices(t *testing.T) {
	t.Parallel()
	keycloak, develop := realms(t)
	for id, secret := range map[string]string{
		issuer.PurchaseServiceClientID: issuer.PurchaseServiceClientSecret, issuer.OpsClientID: issuer.OpsClientSecret,
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			token := func(r realm, secret string) (*oauth2.Token, error) {
				config := clientcredentials.Config{ClientID: id, ClientSecret: secret, TokenURL: r.provider.Endpoint().TokenURL, AuthStyle: oauth2.AuthStyleInHeader}
				return config.Token(t.Context())
			}
			real, err := token(keycloak, secret)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := token(develop, secret)
			if err != nil {
				t.Fatal(err)
			}
			if real.RefreshToken != "" || real.Extra("id_token") != nil {
				t.Error("a service gets more than an access token")
			}
			got := keycloak.claims(t, real.AccessToken, issuer.DefaultAudience)
			t.Logf("%v", got)
			wantSame(t, "access token", got, develop.claims(t, ours.AccessToken, issuer.DefaultAudience))
			_, err = token(keycloak, secret+"x")
			wantRefusal(t, "wrong secret", err, "unauthorized_client")
		})
	}
}
