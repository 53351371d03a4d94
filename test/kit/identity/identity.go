// Package identity gives tests an issuer and its tokens. It is not in kit because every
// test would then be linked with the issuer's libraries.
package identity

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

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
	var described struct {
		Token string `json:"token_endpoint"`
	}
	discovery, err := http.NewRequestWithContext(t.Context(), http.MethodGet, issuerURL+"/.well-known/openid-configuration", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answerOf(t, discovery, &described)
	form := url.Values{"grant_type": {"client_credentials"}}.Encode()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, described.Token, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(client, secret)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	answerOf(t, request, &answer)
	if answer.AccessToken == "" {
		t.Fatalf("the issuer gave no token for %s", client)
	}
	return answer.AccessToken
}

func answerOf(t testing.TB, request *http.Request, into any) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatalf("%s %s: %s: %v", request.Method, request.URL, response.Status, err)
	}
}
