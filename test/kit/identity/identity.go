// Package identity gives tests an issuer and its tokens. It is not in kit because every
// test would then be linked with the issuer's libraries.
package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// theIssuer is this process's development issuer.
var theIssuer struct {
	once sync.Once
	url  string
	err  error
}

// Issuer returns the URL of a development issuer that a package's tests share: it keeps
// no state of theirs.
func Issuer(t testing.TB) string {
	t.Helper()
	theIssuer.once.Do(func() {
		server, err := issuer.Start(context.Background(), kit.Listen(t), issuer.Options{AccessTokenLifetime: time.Hour})
		if theIssuer.err = err; err == nil {
			theIssuer.url = server.URL()
		}
	})
	if theIssuer.err != nil {
		t.Fatal(theIssuer.err)
	}
	return theIssuer.url
}

// Token returns an access token of a service client of an issuer.
func Token(t testing.TB, issuerURL, client, secret string) string {
	t.Helper()
	token, err := TokenOf(t.Context(), issuerURL, client, secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TokenOf is Token, for an issuer that may be away.
func TokenOf(ctx context.Context, issuerURL, client, secret string) (string, error) {
	var described struct {
		Token string `json:"token_endpoint"`
	}
	discovery, err := http.NewRequestWithContext(ctx, http.MethodGet, issuerURL+"/.well-known/openid-configuration", http.NoBody)
	if err != nil {
		return "", err
	}
	if err := answerOf(discovery, &described); err != nil {
		return "", err
	}
	form := url.Values{"grant_type": {"client_credentials"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, described.Token, strings.NewReader(form))
	if err != nil {
		return "", err
	}
	request.SetBasicAuth(client, secret)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := answerOf(request, &answer); err != nil {
		return "", err
	}
	if answer.AccessToken == "" {
		return "", fmt.Errorf("the issuer gave no token for %s", client)
	}
	return answer.AccessToken, nil
}

// Client takes names under .localhost for this machine, as browsers do.
var Client = &http.Client{Transport: &http.Transport{DialContext: browser.Dial}}

func answerOf(request *http.Request, into any) error {
	response, err := Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: %s: %w", request.Method, request.URL, response.Status, err)
	}
	return nil
}
