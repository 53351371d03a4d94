package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// certificates is where Debian, and so distroless, has the authorities that it trusts.
const certificates = "etc/ssl/certs/ca-certificates.crt"

var quiet = log.New(io.Discard, "", 0)

func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// pushBase makes the base of the tests, pushes it and returns its name. It has less than
// the base of .ko.yaml, which is in a registry that tests do not reach: one file, with an
// authority of the tests'. The program needs no more of a base.
func pushBase(repository string) (string, error) {
	authority, err := theAuthority()
	if err != nil {
		return "", err
	}
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for _, folder := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/"} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755}); err != nil {
			return "", err
		}
	}
	if err := archive.WriteHeader(&tar.Header{Name: certificates, Mode: 0o644, Size: int64(len(authority.pem))}); err != nil {
		return "", err
	}
	if _, err := archive.Write(authority.pem); err != nil {
		return "", err
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return "", err
	}
	// Like the base of .ko.yaml it is an index, of one image for each kind of processor.
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range []string{"amd64", "arm64"} {
		config := &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: v1.RootFS{Type: "layers"}}
		img, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), config)
		if err != nil {
			return "", err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	tag, err := name.NewTag(repository + "/base:test")
	if err != nil {
		return "", err
	}
	return tag.String(), remote.WriteIndex(tag, index)
}

// authority signs the certificates of servers that only containers of ours trust.
type authority struct {
	certificate *x509.Certificate
	key         ed25519.PrivateKey
	pem         []byte
}

var theAuthority = sync.OnceValues(func() (*authority, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "miniserver's tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
})

// forLoopback returns a certificate for 127.0.0.1.
func (a *authority) forLoopback() (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
