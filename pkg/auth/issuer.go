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
	// issuerRetry is how soon an issuer that failed is asked again; callers get a 503
	// meanwhile, and do not queue for it.
	issuerRetry = time.Second
)

// Issuer is an OpenID Connect issuer, as it describes itself. It is asked when
// it is first needed, so it may start later than we do.
type Issuer struct {
	url    string
	client *http.Client

	asking singleflight.Group // the one request for the description

	mutex   sync.Mutex // never held while the issuer is asked
	known   *description
	asked   time.Time // when it last failed to answer
	failure error     // and how
}

// NewIssuer returns the issuer at url.
func NewIssuer(url string) *Issuer {
	return &Issuer{url: url, client: &http.Client{
		Timeout: issuerTimeout,
		// None of what we ask an issuer for is elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// description is what an issuer says of itself.
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

// describe returns what the issuer says of itself. It asks the issuer until that
// has answered once: one request for all callers, whose wait ends with their own
// ctx. Its error is fault.Unavailable.
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

// ask asks the issuer for its description, and remembers it, or the failure; the
// result is a *description.
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
	// No caller's patience decides for all that wait; the client has a timeout.
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
