package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/devserver/issuer"
)

// theIssuer is shared by the scenes of a process: it keeps no state of theirs.
var theIssuer struct {
	once sync.Once
	url  string
	err  error
}

func issuerURL(t testing.TB) string {
	t.Helper()
	theIssuer.once.Do(func() {
		server, err := issuer.Start(context.Background(), listen(t), issuer.Options{})
		if err != nil {
			theIssuer.err = err
			return
		}
		theIssuer.url = server.URL()
	})
	must(t, theIssuer.err)
	return theIssuer.url
}

// token returns an access token of a service client.
func token(t testing.TB, client, secret string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}}.Encode()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuerURL(t)+"/token", strings.NewReader(form))
	must(t, err)
	request.SetBasicAuth(client, secret)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&answer))
	if answer.AccessToken == "" {
		t.Fatalf("no token for %s: %s", client, response.Status)
	}
	return answer.AccessToken
}
