package issuer_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

func (r *realm) service(id, secret string, style oauth2.AuthStyle) *clientcredentials.Config {
	return &clientcredentials.Config{
		ClientID: id, ClientSecret: secret, TokenURL: r.provider.Endpoint().TokenURL, AuthStyle: style,
	}
}

func TestClientCredentials(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for _, test := range []struct {
		id, secret, subject, role string
	}{
		{issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret, issuer.PurchaseServiceSubject, issuer.RoleEntitlementWriter},
		{issuer.OpsClientID, issuer.OpsClientSecret, issuer.OpsSubject, issuer.RoleOperator},
	} {
		for name, style := range map[string]oauth2.AuthStyle{
			"basic": oauth2.AuthStyleInHeader, "post": oauth2.AuthStyleInParams,
		} {
			t.Run(test.id+"/"+name, func(t *testing.T) {
				t.Parallel()
				token, err := r.service(test.id, test.secret, style).Token(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if token.RefreshToken != "" || token.Extra("id_token") != nil || token.TokenType != "Bearer" {
					t.Errorf("unexpected tokens beside the access token")
				}
				claims := r.verify(t, token.AccessToken, issuer.DefaultAudience)
				t.Logf("claims: %v", claims)
				want := map[string]any{
					"iss": r.url, "sub": test.subject, "aud": []any{"miniserver"},
					"azp": test.id, "client_id": test.id, "typ": "Bearer", "scope": "profile email",
					"preferred_username": "service-account-" + test.id,
					"realm_access":       map[string]any{"roles": []any{test.role}},
				}
				for claim, value := range want {
					if !reflect.DeepEqual(claims[claim], value) {
						t.Errorf("%s = %v, want %v", claim, claims[claim], value)
					}
				}
				for _, claim := range []string{"jti", "iat", "exp"} {
					if claims[claim] == nil {
						t.Errorf("claim %s is missing", claim)
					}
				}
				if claims["sid"] != nil {
					t.Error("a service has no session")
				}
				if lifetime := claims["exp"].(float64) - claims["iat"].(float64); lifetime < 299 || lifetime > 301 {
					t.Errorf("lifetime = %v s, want 300", lifetime)
				}
			})
		}
	}
}

func TestClientCredentialsRefused(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for name, test := range map[string]struct {
		id, secret string
		status     int
		code       string
	}{
		"wrong secret":   {issuer.OpsClientID, "ops", http.StatusUnauthorized, "invalid_client"},
		"no secret":      {issuer.OpsClientID, "", http.StatusUnauthorized, "invalid_client"},
		"unknown client": {"nobody", "", http.StatusUnauthorized, "invalid_client"},
		"not a service":  {issuer.WebClientID, issuer.WebClientSecret, http.StatusBadRequest, "unauthorized_client"},
	} {
		for _, style := range []oauth2.AuthStyle{oauth2.AuthStyleInHeader, oauth2.AuthStyleInParams} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := r.service(test.id, test.secret, style).Token(t.Context())
				wantRefusal(t, err, test.status, test.code)
			})
		}
	}
}

func TestTokenEndpointTakesOnlyPost(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	query := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {issuer.OpsClientID}, "client_secret": {issuer.OpsClientSecret},
	}
	got := get(t, http.DefaultClient, r.provider.Endpoint().TokenURL+"?"+query.Encode())
	if got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("status = %d, want 405", got.StatusCode)
	}
	query.Set("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
	query.Set("assertion", "x")
	if got := post(t, http.DefaultClient, r.provider.Endpoint().TokenURL, query); got.StatusCode != http.StatusBadRequest {
		t.Errorf("JWT bearer: status = %d, want 400", got.StatusCode)
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/realms/miniserver"} {
		t.Run("path "+path, func(t *testing.T) {
			t.Parallel()
			r := newRealm(t, issuer.Options{URL: path})
			var document struct {
				Issuer            string   `json:"issuer"`
				ResponseTypes     []string `json:"response_types_supported"`
				GrantTypes        []string `json:"grant_types_supported"`
				ChallengeMethods  []string `json:"code_challenge_methods_supported"`
				AuthMethods       []string `json:"token_endpoint_auth_methods_supported"`
				EndSession        string   `json:"end_session_endpoint"`
				BackChannel       bool     `json:"backchannel_logout_supported"`
				BackChannelWithID bool     `json:"backchannel_logout_session_supported"`
			}
			if err := r.provider.Claims(&document); err != nil {
				t.Fatal(err)
			}
			raw, _ := json.MarshalIndent(document, "", " ")
			t.Logf("%s", raw)
			if document.Issuer != r.url || document.EndSession != r.url+"/end_session" {
				t.Errorf("issuer %s, end session %s", document.Issuer, document.EndSession)
			}
			for what, got := range map[string][2][]string{
				"response types": {document.ResponseTypes, {"code"}},
				"grant types":    {document.GrantTypes, {"authorization_code", "refresh_token", "client_credentials"}},
				"challenges":     {document.ChallengeMethods, {"S256"}},
				"auth methods":   {document.AuthMethods, {"client_secret_basic", "client_secret_post"}},
			} {
				if !reflect.DeepEqual(got[0], got[1]) {
					t.Errorf("%s = %v, want %v", what, got[0], got[1])
				}
			}
			if !document.BackChannel || !document.BackChannelWithID {
				t.Error("back-channel logout is not advertised")
			}
			token := r.tokens(t, "alice")
			r.verify(t, idToken(t, token), issuer.WebClientID)
			r.verify(t, token.AccessToken, issuer.DefaultAudience)
			if _, err := r.provider.UserInfo(r.ctx, oauth2.StaticTokenSource(token)); err != nil {
				t.Error(err)
			}
		})
	}
}
