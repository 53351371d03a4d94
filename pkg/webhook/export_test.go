package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
)

// Trust makes the channel trust the certificates of a test's own authority.
func (c *Channel) Trust(roots *x509.CertPool) {
	c.transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
}
