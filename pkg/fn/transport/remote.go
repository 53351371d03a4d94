package transport

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	remoteIdlePerHost  = 64
	remoteIdleTimeout  = 60 * time.Second
	remoteDialTimeout  = 3 * time.Second
	remoteFirstByteMax = 60 * time.Second
	// remotePing detects a machine that vanished behind an HTTP/2 connection.
	remotePing = 5 * time.Second
)

// Remote reaches functions in other processes. where is FUNCTION_URL: a URL in
// which {function} stands for the name, or name=URL pairs separated by commas, or
// both, the URL then being for all that no pair names.
func Remote(where string) (http.RoundTripper, error) {
	t := remote{named: map[string]*url.URL{}}
	for _, entry := range strings.Split(where, ",") {
		entry = strings.TrimSpace(entry)
		if name, address, ok := strings.Cut(entry, "="); ok && !strings.Contains(name, "/") {
			target, err := parseTarget(address)
			if err != nil {
				return nil, err
			}
			t.named[name] = target
			continue
		}
		if _, err := parseTarget(strings.ReplaceAll(entry, "{function}", "name")); err != nil || !strings.Contains(entry, "{function}") || t.template != "" {
			return nil, fmt.Errorf("FUNCTION_URL must be like http://{function}.default.svc.cluster.local or grant=http://127.0.0.1:8081,…; %q is neither", entry)
		}
		t.template = entry
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = remoteIdlePerHost
	transport.IdleConnTimeout = remoteIdleTimeout
	transport.TLSHandshakeTimeout = remoteDialTimeout
	transport.ResponseHeaderTimeout = remoteFirstByteMax
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: remotePing, PingTimeout: remoteDialTimeout}
	t.transport = transport
	return t, nil
}

func parseTarget(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("FUNCTION_URL: %q is not http://host or https://host", address)
	}
	return u, nil
}

type remote struct {
	named     map[string]*url.URL
	template  string
	transport http.RoundTripper
}

var _ http.RoundTripper = remote{}

// RoundTrip sends the request to where the function is that its host names.
func (t remote) RoundTrip(r *http.Request) (*http.Response, error) {
	target, ok := t.named[r.URL.Host]
	if !ok {
		if t.template == "" {
			return nil, fmt.Errorf("FUNCTION_URL does not say where function %q is", r.URL.Host)
		}
		var err error
		if target, err = parseTarget(strings.ReplaceAll(t.template, "{function}", r.URL.Host)); err != nil {
			return nil, err
		}
	}
	outgoing := r.Clone(r.Context())
	outgoing.URL.Scheme, outgoing.URL.Host, outgoing.Host = target.Scheme, target.Host, target.Host
	return t.transport.RoundTrip(outgoing)
}
