package auth

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

const (
	issuerTimeout = 5 * time.Second
	// issuerRetry is the time before a failed issuer is asked again; until then callers
	// get a 503 and do not wait.
	issuerRetry = time.Second
	// issuerPing detects an issuer's machine that vanished; without it, an HTTP/2 connection
	// to it would be used until TCP gives up, which takes a quarter of an hour.
	issuerPing = 5 * time.Second
)

// Issuer is an OpenID Connect issuer and its own description. It is asked on first use,
// so it may start later than this process.
type Issuer struct {
	url    string
	client *http.Client

	asking singleflight.Group // the one request for the description

	mutex   sync.Mutex // never held while the issuer is asked
	known   *description
	asked   time.Time // time of its last failure
	failure error     // of that time
}

// NewIssuer returns the issuer at url.
func NewIssuer(url string) *Issuer {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: issuerPing, PingTimeout: issuerTimeout}
	return &Issuer{url: url, client: &http.Client{
		Timeout: issuerTimeout, Transport: transport,
		// All of an issuer's endpoints that we use answer without a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// description is an issuer's metadata.
type description struct {
	endpoint oauth2.Endpoint
	keys     *keySet

	Keys       string   `json:"jwks_uri"`
	EndSession string   `json:"end_session_endpoint"`
	Revocation string   `json:"revocation_endpoint"`
	AuthMethod []string `json:"token_endpoint_auth_methods_supported"`
	// NamesItself: answers to a sign-in carry iss (RFC 9207).
	NamesItself bool `json:"authorization_response_iss_parameter_supported"`
}

// describe returns the issuer's metadata. It asks the issuer until that has answered
// once: one request for all callers, each of which waits until its own ctx ends. Its
// error is fault.Unavailable.
func (i *Issuer) describe(ctx context.Context) (*description, error) {
	i.mutex.Lock()
	known, failure, asked := i.known, i.failure, i.asked
	i.mutex.Unlock()
	if known != nil {
		return known, nil
	}
	if time.Since(asked) < issuerRetry {
		return nil, away(failure)
	}
	select {
	case answer := <-i.asking.DoChan("", i.ask):
		if answer.Err != nil {
			return nil, away(answer.Err)
		}
		return answer.Val.(*description), nil
	case <-ctx.Done():
		return nil, away(fmt.Errorf("wait for its description: %w", ctx.Err()))
	}
}

// ask fetches the issuer's metadata, and remembers it, or the failure; the result is a
// *description.
func (i *Issuer) ask() (any, error) {
	d, err := i.discover()
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if err != nil {
		i.asked, i.failure = time.Now(), err
		return nil, err
	}
	i.known = d
	return d, nil
}

func (i *Issuer) discover() (*description, error) {
	var d description
	// Not a caller's ctx: others wait for the same answer, and the client has a timeout.
	provider, err := oidc.NewProvider(oidc.ClientContext(context.Background(), i.client), i.url)
	if err == nil {
		err = provider.Claims(&d)
	}
	if err != nil {
		return nil, err
	}
	d.endpoint = provider.Endpoint()
	d.endpoint.AuthStyle = oauth2.AuthStyleInHeader // the default of OpenID Connect Discovery
	if len(d.AuthMethod) > 0 && !slices.Contains(d.AuthMethod, "client_secret_basic") {
		d.endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	d.keys = &keySet{url: d.Keys, client: i.client}
	return &d, nil
}

// context makes the libraries use our client.
func (i *Issuer) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, i.client)
}

// away is the error of an issuer that cannot be reached.
func away(cause error) error { return fault.Unreachable("The sign-in issuer", cause) }
