package issuer

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The web client signs people in: authorization code with PKCE, and refresh
// tokens.
const (
	WebClientID     = "miniserver-web"
	WebClientSecret = "miniserver-web-secret"
)

// The purchase service writes entitlements; it uses client credentials.
const (
	PurchaseServiceClientID     = "purchase-service"
	PurchaseServiceClientSecret = "purchase-service-secret"
	PurchaseServiceSubject      = "5e2f1ce0-0000-4000-8000-000000000101"
)

// The ops client operates the service; it uses client credentials.
const (
	OpsClientID     = "ops"
	OpsClientSecret = "ops-secret"
	OpsSubject      = "5e2f1ce0-0000-4000-8000-000000000102"
)

// serviceAccountPrefix is what Keycloak puts before a client's id to name its
// service account.
const serviceAccountPrefix = "service-account-"

// client is a registered client; it does not change after it was made.
type client struct {
	id, secret             string
	grants                 []oidc.GrantType
	redirectURIs           []string
	postLogoutRedirectURIs []string
	loginURL               string
	idTokenLifetime        time.Duration
	// serviceSubject and serviceRoles describe the account of a client that
	// acts for itself; empty for others.
	serviceSubject string
	serviceRoles   []string
}

var _ op.Client = (*client)(nil)

func seedClients(o Options) []*client {
	web := &client{
		id: WebClientID, secret: WebClientSecret,
		grants:                 []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken},
		redirectURIs:           o.RedirectURIs,
		postLogoutRedirectURIs: o.PostLogoutRedirectURIs,
		loginURL:               o.URL + loginPath,
		idTokenLifetime:        o.AccessTokenLifetime,
	}
	return []*client{
		web,
		serviceClient(PurchaseServiceClientID, PurchaseServiceClientSecret, PurchaseServiceSubject, RoleEntitlementWriter),
		serviceClient(OpsClientID, OpsClientSecret, OpsSubject, RoleOperator),
	}
}

func serviceClient(id, secret, subject string, roles ...string) *client {
	return &client{
		id: id, secret: secret,
		grants:         []oidc.GrantType{oidc.GrantTypeClientCredentials},
		serviceSubject: subject,
		serviceRoles:   roles,
	}
}

// equalSecrets compares in a time that depends on neither the content nor the
// length of the secret.
func equalSecrets(want, got string) bool {
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(w[:], g[:]) == 1
}

func (c *client) GetID() string                        { return c.id }
func (c *client) RedirectURIs() []string               { return c.redirectURIs }
func (c *client) PostLogoutRedirectURIs() []string     { return c.postLogoutRedirectURIs }
func (c *client) ApplicationType() op.ApplicationType  { return op.ApplicationTypeWeb }
func (c *client) AuthMethod() oidc.AuthMethod          { return oidc.AuthMethodBasic }
func (c *client) GrantTypes() []oidc.GrantType         { return c.grants }
func (c *client) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeJWT }
func (c *client) IDTokenLifetime() time.Duration       { return c.idTokenLifetime }
func (c *client) DevMode() bool                        { return false }
func (c *client) IsScopeAllowed(string) bool           { return false }
func (c *client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (c *client) ClockSkew() time.Duration             { return 0 }

// ResponseTypes is empty for clients without a sign-in of users.
func (c *client) ResponseTypes() []oidc.ResponseType {
	if c.loginURL == "" {
		return nil
	}
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

func (c *client) LoginURL(authRequestID string) string {
	return c.loginURL + "?" + loginRequestField + "=" + authRequestID
}

func (c *client) RestrictAdditionalIdTokenScopes() func([]string) []string { //nolint:staticcheck // named by op.Client
	return allScopes
}

func (c *client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return allScopes
}

func allScopes(scopes []string) []string { return scopes }
