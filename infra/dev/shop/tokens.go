package shop

import (
	"context"
	"net/http"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// tokens gets the shop's access tokens by client credentials and keeps each until shortly
// before its expiry.
type tokens struct {
	issuer, clientID, clientSecret string
	client                         *http.Client

	mutex  sync.Mutex
	source oauth2.TokenSource // nil before the first use
	last   string
}

// get returns an access token. The first call asks the issuer for its token endpoint.
func (t *tokens) get() (string, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.source == nil {
		// Not a request's context: the source outlives it. The client has a timeout.
		ctx := oidc.ClientContext(context.Background(), t.client)
		provider, err := oidc.NewProvider(ctx, t.issuer)
		if err != nil {
			return "", err
		}
		config := clientcredentials.Config{ClientID: t.clientID, ClientSecret: t.clientSecret, TokenURL: provider.Endpoint().TokenURL}
		t.source = config.TokenSource(ctx)
	}
	token, err := t.source.Token()
	if err != nil {
		return "", err
	}
	t.last = token.AccessToken
	return t.last, nil
}

// forget makes get return another token than this one, which was refused.
func (t *tokens) forget(token string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.last == token {
		t.source = nil
	}
}
