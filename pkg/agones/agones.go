// Package agones allocates game servers for matches in an Agones cluster (agones.dev).
// It uses the REST interface of the allocator service: one POST to
// /gameserverallocation with JSON, over mutual TLS.
//
// To configure it: the service is agones-allocator in the namespace
// agones-system, on port 443, so AGONES_URL is https://agones-allocator.agones-system
// from inside the cluster, and the load balancer's address from outside. Its
// certificate, the secret allocator-tls, must name that host: the one that Helm makes
// names loadBalancerIP, or nothing without one, and must be replaced then (see Agones'
// guide to the allocator service, with cert-manager). AGONES_CERT_FILE and
// AGONES_KEY_FILE are tls.crt and tls.key of the secret allocator-client.default in
// the game servers' namespace; AGONES_CA_FILE is tls-ca.crt of allocator-tls-ca in
// agones-system. All can be mounted from the secrets.
//
// A match gets one server, however often the call is repeated: the request selects first
// an allocated server with the match's label, and then a ready one, which gets the label
// in the same write (find.go and allocator.go in Agones'
// pkg/gameserverallocations). The allocator service selects by state since Agones
// 1.17, behind the feature gate StateAllocationFilter, which is open by default since
// 1.26 and always since 1.34 (Agones' issues 1239, 2688, 3096). With the gate closed
// the state is ignored, and a repeated call gets a second server.
//
// Agones promises this only for sequential calls. Each replica of the allocator searches
// its own cache, which lags the cluster by some milliseconds, and an abandoned call may
// still be executed. A call that overlaps another one for its match may allocate a server
// that no player joins; game servers should then shut down by themselves.
// matchmaking.Announcer waits 2 s before a retry, and announces the first answer only.
package agones

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Options of an allocator. Errors name them by their settings.
type Options struct {
	URL       string // AGONES_URL: https; plain http only to a loopback host, for a stand-in
	Namespace string // AGONES_NAMESPACE: of the game servers; default when empty
	Fleet     string // AGONES_FLEET: the fleet to allocate from
	// CertFile and KeyFile are the client's certificate and private key (PEM). They are
	// read at the start and at each new connection, so that a rotated pair needs no
	// restart; while the files are no valid pair, the last valid one is used.
	CertFile, KeyFile string
	// CAFile has the authorities (PEM) that may sign the service's certificate, by
	// default those of the operating system. It is read once.
	CAFile  string
	Timeout time.Duration // of one call; 2 s when 0
}

const (
	defaultNamespace = "default"
	defaultTimeout   = 2 * time.Second
)

// Allocator is a matchmaking.Allocator. It is safe for concurrent use.
type Allocator struct {
	endpoint  string
	namespace string
	fleet     string
	timeout   time.Duration
	transport http.RoundTripper
}

var _ matchmaking.Allocator = (*Allocator)(nil)

// New returns an allocator, or an error that names the invalid option. It does not
// connect. With plain http it reads no certificates.
func New(o Options) (*Allocator, error) {
	service, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		endpoint: service.JoinPath("gameserverallocation").String(), namespace: cmp.Or(o.Namespace, defaultNamespace),
		fleet: o.Fleet, timeout: cmp.Or(o.Timeout, defaultTimeout),
	}
	switch {
	case !labelValue.MatchString(a.namespace):
		return nil, fmt.Errorf("AGONES_NAMESPACE: %q is not the name of a namespace", a.namespace)
	case !labelValue.MatchString(a.fleet):
		return nil, fmt.Errorf("AGONES_FLEET: %q is not the name of a fleet", a.fleet)
	case a.timeout < 0:
		return nil, fmt.Errorf("the timeout of an allocation is %s; it must be above 0", a.timeout)
	}
	a.transport, err = newTransport(service.Scheme, o, a.timeout)
	return a, err
}

// parse never puts the URL into its errors, because it may contain a password.
func parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("AGONES_URL is not an https URL without user information, query and fragment")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, errors.New("AGONES_URL: plain http is only for a stand-in on this machine; use https")
	}
	return u, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// labelValue is a valid label's value of Kubernetes, except the empty one, which would
// select every server without a match.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
