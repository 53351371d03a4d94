//go:build func

package funccli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// The image of `func build` is the binary, its sources and root certificates; it runs as
// an unprivileged user on a read-only root file system, and SIGTERM lets requests finish.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	kit.Must(t, os.Mkdir(filepath.Join(dir, ".local"), 0o755))
	kit.Must(t, os.WriteFile(filepath.Join(dir, ".local", "env"), []byte("secret"), 0o600))
	kit.Must(t, os.Symlink("/nowhere", filepath.Join(dir, ".local", "absolute")))
	began := time.Now()
	if out, err := cli(t, dir, "build", "--builder", "host", "--platforms", "linux/"+runtime.GOARCH).CombinedOutput(); err != nil {
		t.Fatalf("func build: %v\n%s", err, out)
	}
	t.Logf("func build for one platform: %s", time.Since(began).Round(time.Second))
	i := unpack(t, filepath.Join(dir, ".func", "builds", "last", "oci"))
	t.Logf("image: %d files, %.1f MB compressed, %.1f MB unpacked", len(i.files), float64(i.compressed)/1e6, float64(i.unpacked)/1e6)
	for _, name := range []string{"func/f", "func/function.go", "func/func.yaml", "func/functions/functions.go", "etc/ssl/certs/ca-certificates.crt"} {
		if !slices.Contains(i.files, name) {
			t.Errorf("the image has no %s", name)
		}
	}
	for _, name := range i.files {
		if strings.HasPrefix(name, "func/.") || strings.HasPrefix(name, "func/docs/") || strings.HasPrefix(name, "func/infra/") || strings.HasSuffix(name, "_test.go") {
			t.Errorf("the image has %s", name)
		}
	}
	if i.config.User != "1000" || !slices.Equal(i.config.Cmd, []string{"/func/f"}) {
		t.Errorf("user %q and command %q, want 1000 and /func/f", i.config.User, i.config.Cmd)
	}
	s := setup(t)
	address := freeAddress(t)
	c := i.start(t, append(s.environment, "LISTEN_ADDRESS="+address, "GATEWAY_URL=http://"+address)...)
	base := "http://" + address
	kit.Eventually(t, "the container is ready", func() bool {
		c.wantRunning()
		response, err := http.Get(base + "/health/readiness")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	t.Logf("runc run to the first 200 of /health/readiness: %s", time.Since(c.began).Round(time.Millisecond))
	wantHealthy(t, base)
	c.wantConfined()
	s.grant(base, "u_1", "k1")
	s.wantNotified("u_1")

	// A request that is half sent at SIGTERM is answered; a new one is not.
	half := s.halfGrant(address)
	c.signal(syscall.SIGTERM)
	kit.Eventually(t, "the port is closed", func() bool {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	half.finish()
	c.wantCleanEnd()
	if n := s.count(`SELECT count(*) FROM entitlement.entitlements WHERE user_id = 'u_half'`); n != 1 {
		t.Errorf("%d entitlements of the request in flight, want 1", n)
	}
}

// halfSent is a grant whose last byte is not sent yet.
type halfSent struct {
	t          testing.TB
	connection net.Conn
	last       string
}

func (s *system) halfGrant(address string) *halfSent {
	s.t.Helper()
	body := `{"user_id":"u_half","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_half"}`
	connection, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
	kit.Must(s.t, err)
	s.t.Cleanup(func() { _ = connection.Close() })
	// The server sends 100 Continue when the function reads the body: the request is in
	// flight.
	_, err = fmt.Fprintf(connection, "POST /v1/entitlements/grants HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nIdempotency-Key: half\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", address, s.token, len(body))
	kit.Must(s.t, err)
	line, err := bufio.NewReader(io.LimitReader(connection, int64(len("HTTP/1.1 100 Continue\r\n\r\n")))).ReadString('\n')
	if err != nil || !strings.Contains(line, " 100 ") {
		s.t.Fatalf("the server sent %q, %v, want 100 Continue", line, err)
	}
	_, err = io.WriteString(connection, body[:len(body)-1])
	kit.Must(s.t, err)
	return &halfSent{t: s.t, connection: connection, last: body[len(body)-1:]}
}

func (h *halfSent) finish() {
	h.t.Helper()
	_, err := io.WriteString(h.connection, h.last)
	kit.Must(h.t, err)
	kit.Must(h.t, h.connection.SetReadDeadline(time.Now().Add(within)))
	answer, err := io.ReadAll(h.connection)
	if err != nil || !strings.Contains(string(answer), "HTTP/1.1 200 OK") {
		h.t.Errorf("the request in flight is answered %q, %v, want 200", answer, err)
	}
}
