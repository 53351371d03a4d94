package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// End ends the session at the issuer, server to server. Keycloak ends the session
// of a refresh token, others that of an ID token; the rest of the grant is revoked (RFC
// 7009).
func (s *SignIn) End(ctx context.Context, idToken, refreshToken string) error {
	d, err := s.issuer.describe(ctx)
	if err != nil {
		return err
	}
	ended := errors.New("the issuer has neither end_session_endpoint nor revocation_endpoint")
	if d.EndSession != "" {
		form := url.Values{"client_id": {s.client.ClientID}, "id_token_hint": {idToken}}
		if refreshToken != "" {
			form.Set("refresh_token", refreshToken)
		}
		ended = s.post(ctx, d, d.EndSession, form)
	}
	if d.Revocation != "" && refreshToken != "" {
		revoked := s.post(ctx, d, d.Revocation, url.Values{"token": {refreshToken}, "token_type_hint": {"refresh_token"}})
		if d.EndSession == "" {
			return revoked
		}
	}
	return ended
}

// post sends form with the client's credentials. A redirect means success: it is meant
// for a browser.
func (s *SignIn) post(ctx context.Context, d *description, to string, form url.Values) error {
	inHeader := d.endpoint.AuthStyle == oauth2.AuthStyleInHeader
	if !inHeader && s.client.ClientSecret != "" {
		form.Set("client_id", s.client.ClientID)
		form.Set("client_secret", s.client.ClientSecret)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if inHeader {
		request.SetBasicAuth(url.QueryEscape(s.client.ClientID), url.QueryEscape(s.client.ClientSecret))
	}
	response, err := s.issuer.client.Do(request)
	if err != nil {
		return away(err)
	}
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the issuer answered %d", response.StatusCode)
	}
	return nil
}

// SignOut is the content of a back-channel logout token: it ends SID, or every session of
// Subject without a SID.
type SignOut struct {
	Issuer, Subject, SID string
	ID                   string // of the token
}

// signOutMaxAge bounds how old a logout token may be.
const signOutMaxAge = 5 * time.Minute

// clockSkew is how far the issuer's clock may be ahead of ours.
const clockSkew = time.Minute

// timely returns an error for a token that is too old, or from the future, where it could
// be replayed after it was forgotten.
func timely(token *oidc.LogoutToken) error {
	var claims struct {
		NotBefore int64 `json:"nbf"`
	}
	if err := token.Claims(&claims); err != nil {
		return err
	}
	latest := time.Now().Add(clockSkew)
	switch {
	case time.Since(token.IssuedAt) > signOutMaxAge:
		return errors.New("issued too long ago")
	case token.IssuedAt.After(latest), time.Unix(claims.NotBefore, 0).After(latest):
		return errors.New("issued in the future")
	}
	return nil
}

// CheckSignOut verifies a logout token (OpenID Connect Back-Channel Logout 1.0). Its
// errors are fault.Malformed, and fault.Unavailable.
func (s *SignIn) CheckSignOut(ctx context.Context, raw string) (SignOut, error) {
	d, err := s.issuer.describe(ctx)
	if err != nil {
		return SignOut{}, err
	}
	noted := &notedKeys{KeySet: d.keys}
	verifier := oidc.NewVerifier(s.issuer.url, noted, &oidc.Config{ClientID: s.client.ClientID, SupportedSigningAlgs: algorithms})
	var token *oidc.LogoutToken
	if raw == "" || len(raw) > maxTokenBytes {
		err = errors.New("missing or too long")
	} else if token, err = verifier.VerifyLogout(ctx, raw); err == nil {
		err = timely(token)
	}
	if err = noted.explain(err); fault.Of(err) == fault.Unavailable {
		return SignOut{}, err
	}
	if err != nil {
		return SignOut{}, &fault.Error{
			Kind: fault.Malformed, Code: "logout_token_invalid",
			Detail: "The logout token is not valid here.", Cause: err,
		}
	}
	return SignOut{Issuer: token.Issuer, Subject: token.Subject, SID: token.SessionID, ID: token.TokenID}, nil
}
