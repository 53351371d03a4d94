package issuer

import (
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// grant is what a user or a client was allowed: the common part of everything tokens are
// made from. A grant with an audience describes an access token; without one the library
// makes the client the audience, which is right for an ID token.
type grant struct {
	subject  string
	clientID string
	scopes   []string
	audience []string
	// sessionID and authTime are empty for a client that acts for itself.
	sessionID string
	authTime  time.Time
}

var (
	_ op.IDTokenRequest      = (*grant)(nil)
	_ op.RefreshTokenRequest = (*refreshRequest)(nil)
)

func (g *grant) GetSubject() string     { return g.subject }
func (g *grant) GetClientID() string    { return g.clientID }
func (g *grant) GetScopes() []string    { return g.scopes }
func (g *grant) GetAudience() []string  { return g.audience }
func (g *grant) GetAuthTime() time.Time { return g.authTime }
func (g *grant) granted() *grant        { return g }

// GetAMR says how the user proved who they are: there are only passwords.
func (g *grant) GetAMR() []string {
	if g.sessionID == "" {
		return nil
	}
	return []string{"pwd"}
}

// forAudience returns the grant of an access token for an audience.
func (g *grant) forAudience(audience string) *grant {
	access := *g
	access.audience = []string{audience}
	return &access
}

// granter is implemented by every kind of request that carries a grant.
type granter interface{ granted() *grant }

// refreshRequest asks for new tokens in a session.
type refreshRequest struct{ grant }

// SetCurrentScopes narrows the new tokens; the session keeps its scopes.
func (r *refreshRequest) SetCurrentScopes(scopes []string) { r.scopes = scopes }

// The `typ` claim distinguishes Keycloak's kinds of tokens.
const (
	typeAccess = "Bearer"
	typeID     = "ID"
)

// supportedClaims is advertised in discovery.
var supportedClaims = []string{
	"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "amr", "azp", "client_id", "jti",
	"at_hash", "sid", "typ", "scope", "realm_access",
	"preferred_username", "name", "given_name", "family_name", "email", "email_verified",
}

// accessClaims are the claims of an access token which the library does not
// know of. Only access tokens have roles.
func accessClaims(g *grant, about account) map[string]any {
	claims := map[string]any{
		"typ":                typeAccess,
		"azp":                g.clientID,
		"scope":              strings.Join(g.scopes, " "),
		"preferred_username": about.Username,
		"realm_access":       map[string]any{"roles": about.Roles},
	}
	if g.sessionID != "" {
		claims["sid"] = g.sessionID
		claims["auth_time"] = g.authTime.Unix()
	}
	return claims
}

// describe fills in what the scopes let a client know about an account.
func describe(info *oidc.UserInfo, about account, scopes []string) {
	info.Subject = about.Subject
	for _, scope := range scopes {
		switch {
		case scope == oidc.ScopeProfile:
			info.PreferredUsername = about.Username
			if !about.service {
				info.GivenName, info.FamilyName = about.GivenName, about.FamilyName
				info.Name = about.GivenName + " " + about.FamilyName
			}
		case scope == oidc.ScopeEmail && !about.service:
			info.Email, info.EmailVerified = about.Email, true
		}
	}
}
