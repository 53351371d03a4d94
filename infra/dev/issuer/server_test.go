package issuer_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

// listen returns a listener on loopback, as httptest would use.
func listen(t *testing.T) net.Listener {
	t.Helper()
	return httptest.NewUnstartedServer(nil).Listener
}

func TestStart(t *testing.T) {
	t.Parallel()
	for _, byContext := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server, err := issuer.Start(ctx, listen(t), issuer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := oidc.NewProvider(t.Context(), server.URL()); err != nil {
			t.Error(err)
		}
		if byContext {
			cancel()
		}
		for range 2 { // waits for the end, and may be called again
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		}
		connection, err := net.DialTimeout("tcp", strings.TrimPrefix(server.URL(), "http://"), time.Second)
		if err == nil {
			connection.Close()
			t.Error("still listening")
		}
	}
}

// publicListener claims to listen on all addresses, without doing so.
type publicListener struct{ net.Listener }

func (publicListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 9000} }

func TestStartRefusesPublicAddress(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	if _, err := issuer.Start(t.Context(), publicListener{listener}, issuer.Options{}); err == nil {
		t.Error("an issuer on a public address started")
	}
	if _, err := listener.Accept(); err == nil {
		t.Error("the listener was not closed")
	}
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"127.0.0.1:9000", "ftp://x/", "http://", "http://x/?a=b", "http://x/#a", "http://u:p@x/", "%"} {
		if _, err := issuer.New(issuer.Options{URL: bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	made, err := issuer.New(issuer.Options{})
	if err != nil || made.URL() != issuer.DefaultURL {
		t.Errorf("zero options: %v, %v", made, err)
	}
}

type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	r := newRealm(t, issuer.Options{
		Logger:               slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		BackChannelLogoutURI: "http://127.0.0.1:1/", // nothing listens there
	})
	code, verifier := r.signIn(t, "alice")
	browser := r.browser(t)
	r.submit(t, browser, r.loginPage(t, browser), "alice", "wrong-password")
	_, _ = r.web().Exchange(r.ctx, code) // refused and logged
	token := r.tokens(t, "alice")
	_, _ = r.refresh(token.RefreshToken)
	_, _ = r.refresh(token.RefreshToken)
	_, _ = r.refresh(token.AccessToken)
	_ = r.userinfoStatus(t, token.AccessToken+"x")
	get(t, browser, r.url+"/end_session?id_token_hint="+idToken(t, token)+"x")

	log.Lock()
	defer log.Unlock()
	written := log.String()
	if !strings.Contains(written, "back-channel logout failed") || !strings.Contains(written, "invalid_grant") {
		t.Errorf("failures were not logged: %s", written)
	}
	for _, secret := range []string{
		code, verifier, "wrong-password", token.AccessToken, token.RefreshToken, idToken(t, token), issuer.WebClientSecret, "logout_token",
	} {
		if strings.Contains(written, secret) {
			t.Errorf("a secret was logged: %s", written)
		}
	}
}
