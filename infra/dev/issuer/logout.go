package issuer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/zitadel/oidc/v3/pkg/oidc"
)

const (
	// backChannelTimeout is how long the web client may take to answer.
	backChannelTimeout = 3 * time.Second
	// logoutTokenLifetime is the two minutes which the specification recommends.
	logoutTokenLifetime = 2 * time.Minute
	logoutTokenType     = "logout+jwt"
	maxIgnoredAnswer    = 4 << 10 // bytes
)

// sessionEnder ends sessions and notifies their clients.
type sessionEnder struct {
	sessions  *sessionStore
	directory directory
	notifier  *logoutNotifier
}

func (e *sessionEnder) endOne(ctx context.Context, id string) {
	e.endWhere(ctx, func(s session) bool { return s.sessionID == id })
}

func (e *sessionEnder) endOfUser(ctx context.Context, username string) int {
	about, ok := e.directory.byName[username]
	if !ok {
		return 0
	}
	return e.endWhere(ctx, func(s session) bool { return s.subject == about.Subject })
}

// endWhere first ends all sessions that match, and then notifies their clients: one that
// does not answer must not keep a session alive.
func (e *sessionEnder) endWhere(ctx context.Context, matches func(session) bool) int {
	ended := e.sessions.end(matches)
	e.notifier.notify(ctx, ended)
	return len(ended)
}

// logoutNotifier notifies the web client that a session has ended, by OpenID Connect
// Back-Channel Logout.
type logoutNotifier struct {
	issuer string
	uri    string // empty: no client is notified
	keys   *keyRing
	client *http.Client
	logger *slog.Logger
}

func newLogoutNotifier(o Options, keys *keyRing) *logoutNotifier {
	return &logoutNotifier{
		issuer: o.URL,
		uri:    o.BackChannelLogoutURI,
		keys:   keys,
		logger: o.Logger,
		client: &http.Client{
			Timeout: backChannelTimeout,
			// Notifications are rare, and a kept connection would leave a goroutine that
			// outlives the issuer.
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// notify returns when the client was notified of all sessions, or did not answer in time.
// It continues if the browser that asked for the logout has gone.
func (n *logoutNotifier) notify(ctx context.Context, ended []session) {
	if n.uri == "" || len(ended) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backChannelTimeout)
	defer cancel()
	for _, s := range ended {
		if s.clientID != WebClientID {
			continue
		}
		if err := n.send(ctx, s); err != nil {
			n.logger.WarnContext(ctx, "back-channel logout failed", "client_id", s.clientID, "error", err)
		}
	}
}

func (n *logoutNotifier) send(ctx context.Context, s session) error {
	token, err := n.logoutToken(s)
	if err != nil {
		return err
	}
	body := url.Values{"logout_token": {token}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.uri, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := n.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxIgnoredAnswer))
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the client answered %s", response.Status)
	}
	return nil
}

func (n *logoutNotifier) logoutToken(s session) (string, error) {
	claims := oidc.NewLogoutTokenClaims(n.issuer, s.subject, oidc.Audience{s.clientID},
		time.Now().Add(logoutTokenLifetime), uuid.NewString(), s.sessionID, 0)
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: n.keys.signing()},
		(&jose.SignerOptions{}).WithType(logoutTokenType))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
