package issuer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

var errNoAccessToken = errors.New("the access token is unknown, expired or revoked")

// CreateAccessToken stores an access token that is issued without a refresh token.
func (s *storage) CreateAccessToken(_ context.Context, r op.TokenRequest) (string, time.Time, error) {
	g, ok := r.(granter)
	if !ok {
		return "", time.Time{}, fmt.Errorf("no access token for a %T", r)
	}
	id, expires := s.sessions.grantAccess(g.granted())
	return id, expires, nil
}

// CreateAccessAndRefreshTokens begins a session after a sign-in, or continues one.
func (s *storage) CreateAccessAndRefreshTokens(
	ctx context.Context, r op.TokenRequest, current string,
) (id, refreshToken string, expires time.Time, err error) {
	switch request := r.(type) {
	case *authRequest:
		refreshToken = s.sessions.open(&request.grant)
	case *refreshRequest:
		var family session
		refreshToken, family, err = s.sessions.rotate(current)
		if err := s.checkRefresh(ctx, family, err); err != nil {
			return "", "", time.Time{}, err
		}
	default:
		return "", "", time.Time{}, fmt.Errorf("no refresh token for a %T", r)
	}
	id, expires, err = s.CreateAccessToken(ctx, r)
	return id, refreshToken, expires, err
}

// TokenRequestByRefreshToken returns the grant of a refresh token.
func (s *storage) TokenRequestByRefreshToken(ctx context.Context, token string) (op.RefreshTokenRequest, error) {
	family, err := s.sessions.find(token)
	if err := s.checkRefresh(ctx, family, err); err != nil {
		return nil, err
	}
	return &refreshRequest{family.grant}, nil
}

// checkRefresh ends a session when one of its old refresh tokens is used again: either a
// thief or its owner has been using a copy.
func (s *storage) checkRefresh(ctx context.Context, family session, err error) error {
	if errors.Is(err, errRefreshTokenReused) {
		s.ender.endOne(ctx, family.sessionID)
	}
	if err != nil {
		return oidc.ErrInvalidGrant().WithDescription("invalid refresh_token").WithParent(err)
	}
	return nil
}

// GetRefreshTokenInfo distinguishes refresh tokens from others before a revocation. A
// refresh token is its own identifier.
func (s *storage) GetRefreshTokenInfo(_ context.Context, _, token string) (subject, id string, err error) {
	family, err := s.sessions.find(token)
	if errors.Is(err, errNoSession) {
		return "", "", op.ErrInvalidRefreshToken
	}
	return family.subject, token, nil
}

// RevokeToken revokes an access token, given by its id, or a refresh token with its
// session. The client that asks knows that the session has ended, so it is not notified.
func (s *storage) RevokeToken(_ context.Context, token, _, clientID string) *oidc.Error {
	notYours := oidc.ErrInvalidClient().WithDescription("the token was not issued to this client")
	if family, err := s.sessions.find(token); !errors.Is(err, errNoSession) {
		if family.clientID != clientID {
			return notYours
		}
		s.sessions.end(func(c session) bool { return c.sessionID == family.sessionID })
		return nil
	}
	if access, ok := s.sessions.accessByID(token); ok {
		if access.clientID != clientID {
			return notYours
		}
		s.sessions.revokeAccess(token)
	}
	return nil
}

// GetPrivateClaimsFromRequest adds the claims of an access token.
func (s *storage) GetPrivateClaimsFromRequest(_ context.Context, r op.TokenRequest, _ []string) (map[string]any, error) {
	g, ok := r.(granter)
	if !ok {
		return nil, fmt.Errorf("no claims for a %T", r)
	}
	return accessClaims(g.granted(), s.directory.bySubject[r.GetSubject()]), nil
}

// SetUserinfoFromRequest adds the claims of an ID token.
func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string) error {
	g, ok := r.(granter)
	if !ok {
		return fmt.Errorf("no ID token for a %T", r)
	}
	describe(info, s.directory.bySubject[r.GetSubject()], scopes)
	info.AppendClaims("typ", typeID)
	info.AppendClaims("sid", g.granted().sessionID)
	return nil
}

// SetUserinfoFromToken answers the userinfo endpoint.
func (s *storage) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, id, subject, _ string) error {
	token, ok := s.sessions.accessByID(id)
	if !ok || token.subject != subject {
		return errNoAccessToken
	}
	describe(info, s.directory.bySubject[subject], token.scopes)
	return nil
}

// SetIntrospectionFromToken answers the introspection endpoint, to any client
// that has authenticated: all of them belong to the same realm.
func (s *storage) SetIntrospectionFromToken(
	_ context.Context, answer *oidc.IntrospectionResponse, id, subject, _ string,
) error {
	token, ok := s.sessions.accessByID(id)
	if !ok || token.subject != subject {
		return errNoAccessToken
	}
	about := s.directory.bySubject[subject]
	info := new(oidc.UserInfo)
	describe(info, about, token.scopes)
	answer.SetUserInfo(info)
	answer.Username = about.Username
	answer.Scope = token.scopes
	answer.ClientID = token.clientID
	answer.TokenType = oidc.BearerToken
	answer.Audience = token.audience
	answer.JWTID = id
	answer.IssuedAt, answer.Expiration = oidc.FromTime(token.issued), oidc.FromTime(token.expires)
	answer.Claims = accessClaims(&token.grant, about)
	return nil
}
