package agones

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	maxIdlePerHost = 16
	idleTimeout    = 90 * time.Second
	// pingAfter detects a replica that vanished; without it, calls on its connection would
	// time out until TCP gives up, which takes a quarter of an hour.
	pingAfter = 5 * time.Second
)

// newTransport prefers HTTP/2, where all calls share one connection to one replica of the
// allocator, whose own cache is the first to have its allocations.
func newTransport(scheme string, o Options, timeout time.Duration) (http.RoundTripper, error) {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: timeout},
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    timeout,
		MaxResponseHeaderBytes: maxAnswerBytes,
	}
	if scheme == "http" {
		return t, nil
	}
	pair := &keyPair{certFile: o.CertFile, keyFile: o.KeyFile}
	if err := pair.read(); err != nil {
		return nil, err
	}
	roots, err := readRoots(o.CAFile)
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots, GetClientCertificate: pair.get}
	return t, nil
}

// keyPair is the client's certificate, from files that may be replaced at any time.
type keyPair struct {
	certFile, keyFile string
	last              atomic.Pointer[tls.Certificate]
}

func (p *keyPair) read() error {
	if p.certFile == "" || p.keyFile == "" {
		return errors.New("AGONES_CERT_FILE and AGONES_KEY_FILE are needed: the allocator service answers known clients only")
	}
	pair, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("AGONES_CERT_FILE and AGONES_KEY_FILE: %w", err)
	}
	p.last.Store(&pair)
	return nil
}

// get is called at each handshake. It ignores an error, because a rotation may have
// replaced only one of the two files, and the earlier pair is still valid.
func (p *keyPair) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	_ = p.read()
	return p.last.Load(), nil
}

// readRoots returns nil, which means the operating system's, without a file.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("AGONES_CA_FILE: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("AGONES_CA_FILE: no certificate (PEM) is in %s", file)
	}
	return roots, nil
}
