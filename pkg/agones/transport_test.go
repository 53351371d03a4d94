package agones_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/agones"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Client and service refuse each other unless each knows the other's authority.
func TestStrangers(t *testing.T) {
	t.Parallel()
	server, client, stranger := newAuthority(t), newAuthority(t), newAuthority(t)
	s := newStandIn(server.serving(client.pool()))
	t.Cleanup(s.Close)
	s.fleet("default", "arena", 3)
	for name, o := range map[string]agones.Options{
		"the service's authority is unknown": newSecrets(t, stranger, client).options(s.URL),
		"the client's authority is unknown":  newSecrets(t, server, stranger).options(s.URL),
		"the name is another":                newSecrets(t, server, client).options(strings.Replace(s.URL, "127.0.0.1", "localhost", 1)),
	} {
		session, err := allocator(t, o).Allocate(t.Context(), match())
		// The error of a client that the service refuses depends on how far it had got.
		if err == nil || name != "the client's authority is unknown" && !strings.Contains(err.Error(), "tls: ") {
			t.Errorf("%s: %v, %v", name, session, err)
			continue
		}
		oneLine(t, name, err)
	}
	// The stand-in requires a certificate. An allocator always has one, see New.
	bare, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: server.pool()})
	if err == nil {
		_, err = bare.Read(make([]byte, 1))
		_ = bare.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	if n := s.called(); n != 0 {
		t.Errorf("%d calls came through, want none", n)
	}
	_, err = allocator(t, newSecrets(t, server, client).options(s.URL)).Allocate(t.Context(), match())
	kit.Must(t, err)
}

// A new certificate and key are used for the next connection. While the files are not a
// valid pair, the last pair is used.
func TestRotation(t *testing.T) {
	t.Parallel()
	server, before, after := newAuthority(t), newAuthority(t), newAuthority(t)
	var accepted atomic.Pointer[tls.Config]
	accepted.Store(server.serving(before.pool()))
	s := newStandIn(&tls.Config{
		Certificates:       accepted.Load().Certificates,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return accepted.Load(), nil },
	})
	t.Cleanup(s.Close)
	s.fleet("default", "arena", 1)
	files, m := newSecrets(t, server, before), match()
	a := allocator(t, files.options(s.URL))
	try := func() error { _, err := a.Allocate(t.Context(), m); return err }
	// A call may meet the connection that was just closed.
	reconnect := func(what string, ok func(error) bool) {
		t.Helper()
		s.CloseClientConnections()
		kit.Eventually(t, what, func() bool { return ok(try()) })
	}
	good := func(err error) bool { return err == nil }
	kit.Must(t, try())

	next := newSecrets(t, server, after)
	content, err := os.ReadFile(next.cert)
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(files.cert, content, 0o600)) // without its key
	reconnect("the last pair is used while the files do not match", good)
	kit.Must(t, os.Remove(files.cert))
	reconnect("the last pair is used while there is no file", good)

	accepted.Store(server.serving(after.pool()))
	reconnect("the old pair is refused", func(err error) bool { return err != nil && strings.Contains(err.Error(), "remote error: tls: ") })
	files.rotate(after)
	reconnect("the new pair is used", good)
}

// New names the option that is wrong, and does not repeat a secret in the URL.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	server, client := newAuthority(t), newAuthority(t)
	const secret = "password-in-the-url"
	for name, c := range map[string]struct {
		change func(*agones.Options)
		says   string
	}{
		"no URL":            {func(o *agones.Options) { o.URL = "" }, "AGONES_URL"},
		"no scheme":         {func(o *agones.Options) { o.URL = "agones-allocator.agones-system:443" }, "AGONES_URL"},
		"another scheme":    {func(o *agones.Options) { o.URL = "grpc://agones-allocator" }, "AGONES_URL"},
		"no host":           {func(o *agones.Options) { o.URL = "https:///x" }, "AGONES_URL"},
		"only a port":       {func(o *agones.Options) { o.URL = "https://:443" }, "AGONES_URL"},
		"user information":  {func(o *agones.Options) { o.URL = "https://u:" + secret + "@10.0.0.1" }, "AGONES_URL"},
		"unreadable":        {func(o *agones.Options) { o.URL = "https://u:" + secret + "@[" }, "AGONES_URL"},
		"query":             {func(o *agones.Options) { o.URL = "https://10.0.0.1/?key=" + secret }, "AGONES_URL"},
		"fragment":          {func(o *agones.Options) { o.URL = "https://10.0.0.1/#" + secret }, "AGONES_URL"},
		"plain http":        {func(o *agones.Options) { o.URL = "http://10.0.0.1" }, "plain http"},
		"plain http, name":  {func(o *agones.Options) { o.URL = "http://localhost.example.com" }, "plain http"},
		"no fleet":          {func(o *agones.Options) { o.Fleet = "" }, "AGONES_FLEET"},
		"bad fleet":         {func(o *agones.Options) { o.Fleet = "a b" }, "AGONES_FLEET"},
		"bad namespace":     {func(o *agones.Options) { o.Namespace = "a/b" }, "AGONES_NAMESPACE"},
		"negative timeout":  {func(o *agones.Options) { o.Timeout = -time.Second }, "timeout"},
		"no certificate":    {func(o *agones.Options) { o.CertFile = "" }, "AGONES_CERT_FILE"},
		"no key":            {func(o *agones.Options) { o.KeyFile = "" }, "AGONES_KEY_FILE"},
		"no such file":      {func(o *agones.Options) { o.CertFile += "x" }, "tls.crtx"},
		"not a certificate": {func(o *agones.Options) { o.CertFile = o.KeyFile }, "AGONES_CERT_FILE"},
		"another key":       {func(o *agones.Options) { o.KeyFile = newSecrets(t, server, client).key }, "match"},
		"no such authority": {func(o *agones.Options) { o.CAFile += "x" }, "AGONES_CA_FILE"},
		"not an authority":  {func(o *agones.Options) { o.CAFile = o.KeyFile }, "AGONES_CA_FILE"},
	} {
		o := newSecrets(t, server, client).options("https://10.0.0.1")
		c.change(&o)
		_, err := agones.New(o)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q and no secret", name, err, c.says)
		}
	}
}

func TestNewTakes(t *testing.T) {
	t.Parallel()
	server, client := newAuthority(t), newAuthority(t)
	for _, url := range []string{
		"https://agones-allocator.agones-system", "https://10.0.0.1:443/", "https://[2001:db8::1]:443", "https://example.com/agones",
		"http://127.0.0.1:8443", "http://127.1.2.3", "http://[::1]:8443", "http://localhost:8443",
	} {
		o := newSecrets(t, server, client).options(url)
		o.CAFile, o.Timeout = "", 0 // the operating system's authorities, the default timeout
		allocator(t, o)
	}
	// Plain http needs no files, and ignores wrong ones.
	allocator(t, agones.Options{URL: "http://localhost:8443", Fleet: "arena", CertFile: filepath.Join(t.TempDir(), "none")})
}

// A call fails at once if nothing listens at the address.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	_, o := start(t, 0)
	o.URL = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort()))
	began := time.Now()
	_, err := allocator(t, o).Allocate(t.Context(), match())
	if err == nil || time.Since(began) > patience/2 {
		t.Errorf("%v after %s, want an error at once", err, time.Since(began))
	}
}
