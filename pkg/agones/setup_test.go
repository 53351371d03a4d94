package agones_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/agones"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// authority signs certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "allocation-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	kit.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	kit.Must(t, err)
	return &authority{t, cert, key}
}

// issue returns a certificate for 127.0.0.1 and its key, both PEM.
func (a *authority) issue(usage x509.ExtKeyUsage) (certificate, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "miniserver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	kit.Must(a.t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	kit.Must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// serving returns the configuration of a server that requires a client certificate.
func (a *authority) serving(clients *x509.CertPool) *tls.Config {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.issue(x509.ExtKeyUsageServerAuth))
	kit.Must(a.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
}

// secrets are the files of a client.
type secrets struct {
	t             testing.TB
	cert, key, ca string
}

func newSecrets(t testing.TB, server, client *authority) *secrets {
	t.Helper()
	dir := t.TempDir()
	s := &secrets{t, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "tls-ca.crt")}
	kit.Must(t, os.WriteFile(s.ca, server.pem(), 0o600))
	s.rotate(client)
	return s
}

// rotate replaces the certificate and key by new ones of the authority.
func (s *secrets) rotate(client *authority) {
	s.t.Helper()
	certificate, key := client.issue(x509.ExtKeyUsageClientAuth)
	kit.Must(s.t, os.WriteFile(s.cert, certificate, 0o600))
	kit.Must(s.t, os.WriteFile(s.key, key, 0o600))
}

func (s *secrets) options(url string) agones.Options {
	return agones.Options{URL: url, Fleet: "arena", CertFile: s.cert, KeyFile: s.key, CAFile: s.ca, Timeout: patience}
}

// start returns a stand-in over TLS with n game servers in the fleet arena, and the
// options that reach it.
func start(t testing.TB, n int) (*standIn, agones.Options) {
	t.Helper()
	server, client := newAuthority(t), newAuthority(t)
	s := newStandIn(server.serving(client.pool()))
	t.Cleanup(s.Close)
	s.fleet("default", "arena", n)
	return s, newSecrets(t, server, client).options(s.URL)
}

func allocator(t testing.TB, o agones.Options) *agones.Allocator {
	t.Helper()
	a, err := agones.New(o)
	kit.Must(t, err)
	return a
}

func match() matchmaking.Match {
	u := id.New()
	return matchmaking.Match{
		ID: id.Text(id.Match, u), EventID: u.String(), Mode: "casual", MatchedAt: time.Now(),
		Players: [2]matchmaking.Player{{UserID: "u_1", TicketID: "casual_1"}, {UserID: "u_2", TicketID: "casual_2"}},
	}
}
