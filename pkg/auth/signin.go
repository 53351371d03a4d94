package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// SignIn signs people in by the authorization code flow with PKCE
// (RFC 6749, RFC 7636, OpenID Connect Core).
type SignIn struct {
	issuer *Issuer
	bearer *Bearer
	client oauth2.Config
}

// NewSignIn returns the sign-in of a client. An empty secret means a public one.
func NewSignIn(bearer *Bearer, clientID, secret, redirectURL string, scopes []string) *SignIn {
	return &SignIn{issuer: bearer.issuer, bearer: bearer, client: oauth2.Config{
		ClientID: clientID, ClientSecret: secret, RedirectURL: redirectURL, Scopes: scopes,
	}}
}

// Errors of signing in.
var (
	// ErrRevoked: the issuer has ended the session, or never had it.
	ErrRevoked = errors.New("the issuer refuses to renew the tokens")
	// errSignIn is the error of every failed sign-in; the cause stays in the log.
	errSignIn = fault.New(fault.Malformed, "sign_in_failed", "The sign-in did not succeed; start again at /login.")
)

func signInFailed(cause error) error {
	return &fault.Error{Kind: errSignIn.Kind, Code: errSignIn.Code, Detail: errSignIn.Detail, Cause: cause}
}

// Grant is the result of a sign-in or a renewal.
type Grant struct {
	Access
	SID          string // the session at the issuer
	IDToken      string
	RefreshToken string
}

// Proof ties an issuer's answer to its sign-in.
type Proof struct {
	Nonce    string // returned in the ID token
	Verifier string // PKCE's; it never leaves us before the exchange
}

// NewProof returns the proof of a new sign-in.
func NewProof() Proof {
	return Proof{Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier()}
}

// Begin returns the issuer's URL for the browser. With again, people who are signed in
// there must authenticate once more.
func (s *SignIn) Begin(ctx context.Context, state string, proof Proof, again bool) (string, error) {
	d, err := s.issuer.describe(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(proof.Nonce), oauth2.S256ChallengeOption(proof.Verifier)}
	if again {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return s.at(d).AuthCodeURL(state, options...), nil
}

func (s *SignIn) at(d *description) *oauth2.Config {
	config := s.client
	config.Endpoint = d.endpoint
	return &config
}

// Finish takes the issuer's answer from the browser and returns the grant. Its errors are
// fault.Malformed for an invalid answer, and fault.Unavailable.
func (s *SignIn) Finish(ctx context.Context, answer url.Values, proof Proof) (Grant, error) {
	d, err := s.issuer.describe(ctx)
	if err != nil {
		return Grant{}, err
	}
	// RFC 9207: a code of another issuer must not be sent to ours.
	if iss, named := answer["iss"]; named && (len(iss) != 1 || iss[0] != s.issuer.url) || !named && d.NamesItself {
		return Grant{}, signInFailed(errors.New("iss of the answer is not the issuer"))
	}
	if refusal := answer.Get("error"); refusal != "" {
		return Grant{}, signInFailed(fmt.Errorf("the issuer answered %q", refusal))
	}
	if answer.Get("code") == "" {
		return Grant{}, signInFailed(errors.New("the answer has no code"))
	}
	token, err := s.at(d).Exchange(s.issuer.context(ctx), answer.Get("code"), oauth2.VerifierOption(proof.Verifier))
	if err != nil {
		return Grant{}, exchangeError(err, signInFailed)
	}
	ctx = fromIssuer(ctx)
	raw, _ := token.Extra("id_token").(string)
	idToken, err := d.verify(ctx, s.issuer.url, s.client.ClientID, raw)
	if fault.Of(err) == fault.Unavailable {
		return Grant{}, err
	}
	if err != nil {
		return Grant{}, signInFailed(err)
	}
	if subtle.ConstantTimeCompare([]byte(idToken.Nonce), []byte(proof.Nonce)) != 1 {
		return Grant{}, signInFailed(errors.New("the ID token has another nonce"))
	}
	return s.grant(ctx, token, idToken, raw)
}

// grant verifies the access token, which carries the roles, and that both tokens have
// the same subject.
func (s *SignIn) grant(ctx context.Context, token *oauth2.Token, idToken *oidc.IDToken, raw string) (Grant, error) {
	access, err := s.bearer.Check(ctx, token.AccessToken)
	if fault.Of(err) == fault.Unavailable {
		return Grant{}, err
	}
	var claims struct {
		SID      string `json:"sid"`
		AuthTime int64  `json:"auth_time"`
		Client   string `json:"azp"`
	}
	if err == nil {
		err = idToken.Claims(&claims)
	}
	if err == nil && claims.Client != "" && claims.Client != s.client.ClientID {
		err = errors.New("the ID token was issued to another client")
	}
	if err == nil && access.Subject != idToken.Subject {
		err = errors.New("ID token and access token are about different people")
	}
	if err != nil {
		return Grant{}, signInFailed(err)
	}
	if claims.AuthTime > 0 {
		access.AuthTime = time.Unix(claims.AuthTime, 0)
	}
	return Grant{Access: access, SID: claims.SID, IDToken: raw, RefreshToken: token.RefreshToken}, nil
}

// Renew returns new tokens for subject. ErrRevoked means that the issuer ended the
// session; any other error means that this is unknown now. IDToken is empty if the issuer
// sent none.
func (s *SignIn) Renew(ctx context.Context, subject, refreshToken string) (Grant, error) {
	if refreshToken == "" {
		return Grant{}, ErrRevoked
	}
	d, err := s.issuer.describe(ctx)
	if err != nil {
		return Grant{}, err
	}
	token, err := s.at(d).TokenSource(s.issuer.context(ctx), &oauth2.Token{RefreshToken: refreshToken}).Token()
	if err != nil {
		return Grant{}, exchangeError(err, func(error) error { return ErrRevoked })
	}
	access, err := s.bearer.Check(fromIssuer(ctx), token.AccessToken)
	if err != nil && fault.Of(err) != fault.Unavailable || err == nil && access.Subject != subject {
		return Grant{}, ErrRevoked
	}
	raw, _ := token.Extra("id_token").(string)
	return Grant{Access: access, IDToken: raw, RefreshToken: token.RefreshToken}, err
}

// exchangeError distinguishes a refused grant from an issuer that cannot be reached, and
// from one that refuses this client.
func exchangeError(err error, refused func(error) error) error {
	var answered *oauth2.RetrieveError
	if errors.As(err, &answered) && answered.ErrorCode == "invalid_grant" {
		return refused(errors.New("the issuer answered invalid_grant"))
	}
	if answered != nil {
		// Not its text: it contains the whole answer, and perhaps tokens.
		err = fmt.Errorf("the issuer answered %d %s", answered.Response.StatusCode, answered.ErrorCode)
	}
	return away(err)
}
