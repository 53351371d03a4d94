package issuer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Defaults of [Options].
const (
	// DefaultURL is the issuer URL used by New when Options.URL is empty.
	DefaultURL = "http://127.0.0.1:9000"
	// DefaultAudience is the audience of access tokens: the API.
	DefaultAudience = "miniserver"
	// DefaultAccessTokenLifetime is how long access and ID tokens are valid.
	DefaultAccessTokenLifetime = 5 * time.Minute
)

// Options configures an issuer; the zero value works, except that nobody can
// sign in before the web client has a redirect URI.
type Options struct {
	// URL is the issuer's public URL, for example http://127.0.0.1:9000. It may
	// have a path. Empty means DefaultURL in New, and the listener's address in
	// Start.
	URL string
	// Audience is what access tokens are for; empty means DefaultAudience.
	Audience string
	// RedirectURIs are the callback addresses of the web client, compared
	// exactly.
	RedirectURIs []string
	// PostLogoutRedirectURIs are where the web client may send a browser after
	// logout, compared exactly.
	PostLogoutRedirectURIs []string
	// BackChannelLogoutURI is notified of every session of the web client that ends.
	// Empty: no client is notified.
	BackChannelLogoutURI string
	// AccessTokenLifetime is how long access tokens and ID tokens are valid;
	// zero means DefaultAccessTokenLifetime.
	AccessTokenLifetime time.Duration
	// KeyDir, if set, is the directory in which the signing keys persist, so
	// that tokens survive a restart of the issuer. It is created if missing.
	KeyDir string
	// Logger receives failures; nil means none. Tokens, codes and passwords are
	// never logged.
	Logger *slog.Logger
}

// Issuer is a development OpenID Connect issuer.
type Issuer struct {
	url      string
	keys     *keyRing
	sessions *sessionEnder
	handler  http.Handler
}

// New makes an issuer. It does not listen: see Handler and Start.
func New(o Options) (*Issuer, error) {
	o = o.withDefaults()
	issuerURL, err := parseIssuerURL(o.URL)
	if err != nil {
		return nil, err
	}
	keys, err := newKeyRing(o.KeyDir)
	if err != nil {
		return nil, fmt.Errorf("issuer: signing keys: %w", err)
	}
	notifier := newLogoutNotifier(o, keys)
	store := newStorage(o, keys, notifier)
	provider, err := newProvider(o, store)
	if err != nil {
		return nil, err
	}
	endpoints := newEndpoints(provider, store, o)
	handler := op.RegisterLegacyServer(endpoints, op.AuthorizeCallbackHandler(provider),
		op.WithFallbackLogger(o.Logger),
		// The web client talks to the issuer from its server, so only the issuer's own
		// origin needs access.
		op.WithServerCORSOptions(nil),
	)
	pages := &loginPages{store: store, callback: o.URL + callbackPath, action: issuerURL.Path + loginPath}
	return &Issuer{
		url:      o.URL,
		keys:     keys,
		sessions: store.ender,
		handler:  withRoutes(issuerURL.Path, handler, pages),
	}, nil
}

// URL is the issuer's URL: the `iss` of its tokens.
func (i *Issuer) URL() string { return i.url }

// Handler serves the whole issuer at the path of its URL: discovery, keys,
// authorization, token, userinfo, introspection, revocation, logout and the
// login form.
func (i *Issuer) Handler() http.Handler { return i.handler }

// RotateKey makes a new signing key. The last few public keys stay in the JWKS, so tokens
// that they signed stay verifiable.
func (i *Issuer) RotateKey() error { return i.keys.rotate() }

// EndSessions signs a user out everywhere, as an administrator would: the user's sessions
// end, their refresh tokens are revoked, and the web client is notified over the back
// channel before EndSessions returns. It returns how many sessions it ended; an unknown
// user has none.
func (i *Issuer) EndSessions(ctx context.Context, username string) int {
	return i.sessions.endOfUser(ctx, username)
}

func (o Options) withDefaults() Options {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	if o.Audience == "" {
		o.Audience = DefaultAudience
	}
	if o.AccessTokenLifetime <= 0 {
		o.AccessTokenLifetime = DefaultAccessTokenLifetime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func parseIssuerURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("issuer: URL: %w", err)
	case u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, errors.New("issuer: URL must be an absolute http or https URL")
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, errors.New("issuer: URL must not have a query, a fragment or user information")
	}
	return u, nil
}

// newProvider configures the library. What it offers beyond this is switched
// off in endpoints.go.
func newProvider(o Options, store *storage) (*op.Provider, error) {
	config := &op.Config{
		DefaultLogoutRedirectURI: o.URL + signedOutPath,
		CodeMethodS256:           true,
		AuthMethodPost:           true,
		GrantTypeRefreshToken:    true,
		SupportedScopes:          []string{oidc.ScopeOpenID, oidc.ScopeProfile, oidc.ScopeEmail, oidc.ScopeOfflineAccess},
		SupportedClaims:          supportedClaims,
		// Sessions have an identifier, and only the web client registers an address, so
		// the feature is advertised whether it is used or not.
		BackChannelLogoutSupported:        true,
		BackChannelLogoutSessionSupported: true,
	}
	if _, err := rand.Read(config.CryptoKey[:]); err != nil {
		return nil, err
	}
	provider, err := op.NewProvider(config, store, op.StaticIssuer(o.URL),
		op.WithAllowInsecure(), op.WithLogger(o.Logger))
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return provider, nil
}
