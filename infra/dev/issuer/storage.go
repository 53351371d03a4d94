package issuer

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// storage gives the library its clients, sign-ins, tokens and keys.
type storage struct {
	unsupported
	audience  string
	keys      *keyRing
	clients   map[string]*client
	directory directory
	logins    *loginStore
	sessions  *sessionStore
	ender     *sessionEnder
}

var (
	_ op.Storage                        = (*storage)(nil)
	_ op.ClientCredentialsStorage       = (*storage)(nil)
	_ op.CanTerminateSessionFromRequest = (*storage)(nil)
	_ op.CanGetPrivateClaimsFromRequest = (*storage)(nil)
	_ op.CanSetUserinfoFromRequest      = (*storage)(nil)
)

func newStorage(o Options, keys *keyRing, notifier *logoutNotifier) *storage {
	seeded := seedClients(o)
	s := &storage{
		audience:  o.Audience,
		keys:      keys,
		clients:   map[string]*client{},
		directory: newDirectory(seeded),
		logins:    newLoginStore(time.Now),
		sessions:  newSessionStore(o.AccessTokenLifetime, time.Now),
	}
	for _, c := range seeded {
		s.clients[c.id] = c
	}
	s.ender = &sessionEnder{sessions: s.sessions, directory: s.directory, notifier: notifier}
	return s
}

// errClient is the answer to a client that is unknown or gives a wrong secret.
func errClient() error {
	return op.NewStatusError(
		oidc.ErrInvalidClient().WithDescription("invalid client_id / client_secret"), http.StatusUnauthorized)
}

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if c, ok := s.clients[id]; ok {
		return c, nil
	}
	return nil, errClient()
}

func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	if c, ok := s.clients[id]; ok && equalSecrets(c.secret, secret) {
		return nil
	}
	return errClient()
}

func (s *storage) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	if err := s.AuthorizeClientIDSecret(ctx, id, secret); err != nil {
		return nil, err
	}
	return s.clients[id], nil
}

// ClientCredentialsTokenRequest grants a client its own account.
func (s *storage) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	c, ok := s.clients[id]
	if !ok || c.serviceSubject == "" {
		return nil, oidc.ErrUnauthorizedClient()
	}
	// The scopes that Keycloak gives by default. No user signed in, so openid and
	// offline_access mean nothing.
	granted := []string{oidc.ScopeProfile, oidc.ScopeEmail}
	if len(scopes) > 0 {
		granted = slices.DeleteFunc(granted, func(scope string) bool { return !slices.Contains(scopes, scope) })
	}
	return &grant{subject: c.serviceSubject, clientID: id, scopes: granted, audience: []string{s.audience}}, nil
}

// CreateAuthRequest begins a sign-in.
func (s *storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	if slices.Contains(r.Prompt, oidc.PromptNone) {
		// There is no single sign-on session which could answer silently.
		return nil, oidc.ErrLoginRequired()
	}
	if r.CodeChallenge == "" || r.CodeChallengeMethod != oidc.CodeChallengeMethodS256 {
		return nil, oidc.ErrInvalidRequest().WithDescription("PKCE is required: code_challenge with code_challenge_method S256")
	}
	request := newAuthRequest(r)
	s.logins.begin(request)
	return request, nil
}

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	request, err := s.logins.get(id)
	if err != nil {
		return nil, oidc.ErrInvalidRequest().WithDescription("%s", err.Error())
	}
	return request, nil
}

func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	return s.logins.issue(id, code)
}

// AuthRequestByCode uses a code up. A code that is used twice was stolen, so what was
// issued for it is revoked (RFC 6749, section 4.1.2).
func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	request, err := s.logins.redeem(code)
	if errors.Is(err, errCodeReused) {
		s.ender.endOne(ctx, request.sessionID)
	}
	if err != nil {
		return nil, err
	}
	return request, nil
}

// DeleteAuthRequest has nothing to do: a code is used up when it is read.
func (s *storage) DeleteAuthRequest(context.Context, string) error { return nil }

// SigningKey returns the key for the next token.
func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	return signingKey{s.keys.signing()}, nil
}

func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s *storage) KeySet(context.Context) ([]op.Key, error) { return s.keys.public(), nil }

// TerminateSession ends a user's sessions at a client.
func (s *storage) TerminateSession(ctx context.Context, subject, clientID string) error {
	s.ender.endWhere(ctx, func(c session) bool { return c.subject == subject && c.clientID == clientID })
	return nil
}

// TerminateSessionFromRequest ends the session of the ID token that came with a
// logout request. Without one there is nothing to end: the issuer keeps no
// session in the browser.
func (s *storage) TerminateSessionFromRequest(ctx context.Context, r *op.EndSessionRequest) (string, error) {
	if hint := r.IDTokenHintClaims; hint != nil {
		if hint.Claims["typ"] != typeID {
			return "", oidc.ErrInvalidRequest().WithDescription("id_token_hint is not an ID token")
		}
		s.ender.endOne(ctx, hint.SessionID)
	}
	return r.RedirectURI, nil
}
