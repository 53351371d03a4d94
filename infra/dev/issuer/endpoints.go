package issuer

import (
	"context"
	"net/http"
	"slices"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The paths below the issuer's URL.
const (
	authorizationPath = "/authorize"
	callbackPath      = authorizationPath + "/callback" // from the form back to the library
	tokenPath         = "/token"
	introspectionPath = "/introspect"
	userinfoPath      = "/userinfo"
	revocationPath    = "/revoke"
	endSessionPath    = "/end_session"
	keysPath          = "/jwks"
	loginPath         = "/login"
	signedOutPath     = "/signed-out"
)

// endpoints is the library's server, except for what it does differently from
// Keycloak or does not do strictly enough.
type endpoints struct {
	*op.LegacyServer
	provider op.OpenIDProvider
	store    *storage
	url      string
}

func newEndpoints(provider op.OpenIDProvider, store *storage, o Options) *endpoints {
	return &endpoints{
		LegacyServer: op.NewLegacyServer(provider, op.Endpoints{
			Authorization: op.NewEndpoint(authorizationPath),
			Token:         op.NewEndpoint(tokenPath),
			Introspection: op.NewEndpoint(introspectionPath),
			Userinfo:      op.NewEndpoint(userinfoPath),
			Revocation:    op.NewEndpoint(revocationPath),
			EndSession:    op.NewEndpoint(endSessionPath),
			JwksURI:       op.NewEndpoint(keysPath),
		}),
		provider: provider,
		store:    store,
		url:      o.URL,
	}
}

// Discovery advertises only what this issuer supports. The library lists all that it
// could do.
func (e *endpoints) Discovery(ctx context.Context, r *op.Request[struct{}]) (*op.Response, error) {
	response, err := e.LegacyServer.Discovery(ctx, r)
	if err != nil {
		return nil, err
	}
	document, ok := response.Data.(*oidc.DiscoveryConfiguration)
	if !ok {
		return response, nil
	}
	secrets := []oidc.AuthMethod{oidc.AuthMethodBasic, oidc.AuthMethodPost}
	document.ResponseTypesSupported = []string{string(oidc.ResponseTypeCode)}
	document.GrantTypesSupported = []oidc.GrantType{
		oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeClientCredentials,
	}
	document.TokenEndpointAuthMethodsSupported = secrets
	document.RevocationEndpointAuthMethodsSupported = secrets
	document.IntrospectionEndpointAuthMethodsSupported = secrets
	document.RevocationEndpointAuthSigningAlgValuesSupported = nil
	document.IntrospectionEndpointAuthSigningAlgValuesSupported = nil
	return response, nil
}

// VerifyAuthRequest compares the redirect URI exactly; the library unescapes it
// first.
func (e *endpoints) VerifyAuthRequest(
	ctx context.Context, r *op.Request[oidc.AuthRequest],
) (*op.ClientRequest[oidc.AuthRequest], error) {
	verified, err := e.LegacyServer.VerifyAuthRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(verified.Client.RedirectURIs(), r.Data.RedirectURI) {
		return nil, oidc.ErrInvalidRequestRedirectURI().WithDescription("redirect_uri is not registered for the client")
	}
	return verified, nil
}

// CodeExchange is stricter than the library's: the code must have been issued
// to the client that redeems it, and the verifier cannot be left out.
func (e *endpoints) CodeExchange(
	ctx context.Context, r *op.ClientRequest[oidc.AccessTokenRequest],
) (*op.Response, error) {
	found, err := op.AuthRequestByCode(ctx, e.store, r.Data.Code)
	if err != nil {
		return nil, err
	}
	if found.GetClientID() != r.Client.GetID() {
		return nil, oidc.ErrInvalidGrant().WithDescription("the code was issued to another client")
	}
	if found.GetRedirectURI() != r.Data.RedirectURI {
		return nil, oidc.ErrInvalidGrant().WithDescription("redirect_uri does not correspond")
	}
	if err := op.AuthorizeCodeChallenge(r.Data.CodeVerifier, found.GetCodeChallenge()); err != nil {
		return nil, err
	}
	return e.sessionTokens(ctx, found, r.Client, "")
}

// RefreshToken rotates a refresh token.
func (e *endpoints) RefreshToken(
	ctx context.Context, r *op.ClientRequest[oidc.RefreshTokenRequest],
) (*op.Response, error) {
	found, err := op.RefreshTokenRequestByRefreshToken(ctx, e.store, r.Data.RefreshToken)
	if err != nil {
		return nil, err
	}
	if found.GetClientID() != r.Client.GetID() {
		return nil, oidc.ErrInvalidGrant().WithDescription("the refresh token was issued to another client")
	}
	if err := op.ValidateRefreshTokenScopes(r.Data.Scopes, found); err != nil {
		return nil, err
	}
	return e.sessionTokens(ctx, found, r.Client, r.Data.RefreshToken)
}

// sessionTokens makes the tokens of a session. The library's own function
// cannot be used: it gives both tokens the same audience, whereas here the
// access token is for the API and the ID token for the client; and it gives a
// refresh token only with offline_access, whereas Keycloak always does.
func (e *endpoints) sessionTokens(
	ctx context.Context, request op.IDTokenRequest, c op.Client, refreshToken string,
) (*op.Response, error) {
	id, refreshToken, expires, err := e.store.CreateAccessAndRefreshTokens(ctx, request, refreshToken)
	if err != nil {
		return nil, err
	}
	access := request.(granter).granted().forAudience(e.store.audience)
	response := &oidc.AccessTokenResponse{
		TokenType:    oidc.BearerToken,
		RefreshToken: refreshToken,
		ExpiresIn:    uint64(e.store.sessions.lifetime.Seconds()),
		Scope:        request.GetScopes(),
	}
	response.AccessToken, err = op.CreateJWT(ctx, e.url, access, expires, id, c, e.store)
	if err != nil {
		return nil, err
	}
	if slices.Contains(request.GetScopes(), oidc.ScopeOpenID) {
		response.IDToken, err = op.CreateIDToken(ctx, e.url, request, c.IDTokenLifetime(), response.AccessToken, "", e.store, c)
		if err != nil {
			return nil, err
		}
	}
	return op.NewResponse(response), nil
}

// UserInfo answers 401 to every bad token (RFC 6750), also to a revoked one.
func (e *endpoints) UserInfo(ctx context.Context, r *op.Request[oidc.UserInfoRequest]) (*op.Response, error) {
	response, err := e.LegacyServer.UserInfo(ctx, r)
	if err != nil {
		refusal := oidc.ErrAccessDenied().WithDescription("access token invalid").WithParent(err)
		return nil, op.NewStatusError(refusal, http.StatusUnauthorized)
	}
	return response, nil
}

// JWTProfile refuses a grant that the library always supports and this issuer does not.
func (e *endpoints) JWTProfile(context.Context, *op.Request[oidc.JWTProfileGrantRequest]) (*op.Response, error) {
	return nil, oidc.ErrUnsupportedGrantType().WithDescription("%s not supported", oidc.GrantTypeBearer)
}
