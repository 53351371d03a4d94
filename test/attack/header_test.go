package attack_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Headers that are too long or too slow are cut off.
func TestAttackHeaders(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	const patience = time.Second
	s := system.StartAt(t, i, "READ_HEADER_TIMEOUT="+patience.String(), "SHUTDOWN_GRACE=2s")
	address := s.BehindServe()
	const ask = "GET /health/liveness HTTP/1.1\r\nHost: x\r\n"
	line := "X-A: " + strings.Repeat("x", 1017) + "\r\n" // 1 KiB
	for name, test := range map[string]struct {
		headers string
		status  int
	}{
		"15 KiB":                   {strings.Repeat(line, 15), 200},
		"15 KiB in one":            {"X-A: " + strings.Repeat("x", 15<<10) + "\r\n", 200},
		"21 KiB":                   {strings.Repeat(line, 21), 431},
		"21 KiB in one":            {"X-A: " + strings.Repeat("x", 21<<10) + "\r\n", 431},
		"21 KiB in one name":       {strings.Repeat("x", 21<<10) + ": x\r\n", 431},
		"1 MiB":                    {strings.Repeat(line, 1024), 431},
		"1 MiB without an end":     {strings.Repeat("x", 1<<20), 431},
		"21 KiB of cookies":        {"Cookie: " + strings.Repeat("a=b; ", 21<<10/5) + "\r\n", 431},
		"21 KiB of authorization":  {"Authorization: Bearer " + strings.Repeat("x", 21<<10) + "\r\n", 431},
		"10 000 of them":           {strings.Repeat("A: b\r\n", 10_000), 431},
		"15 KiB of bearer's token": {"Authorization: Bearer " + strings.Repeat("x", 15<<10) + "\r\n", 200},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			kit.Must(t, err)
			defer conn.Close()
			kit.Must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			// The server answers before it has read all, so writing may fail.
			written := make(chan struct{})
			go func() {
				defer close(written)
				_, _ = io.WriteString(conn, ask+test.headers+"\r\n")
			}()
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			kit.Must(t, err)
			_ = response.Body.Close()
			if response.StatusCode != test.status {
				t.Errorf("answered %s", response.Status)
			}
			_ = conn.Close()
			<-written
		})
	}
	t.Run("a URL of 21 KiB", func(t *testing.T) {
		response, err := http.Get("http://" + address + "/login?return_to=/" + strings.Repeat("x", 21<<10))
		kit.Must(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %s", response.Status)
		}
	})
	for name, text := range map[string]string{"nothing": "", "half a line": "GET /docs HT", "no end of the headers": "GET /docs HTTP/1.1\r\nHost: x\r\nX-A: "} {
		t.Run("slow: "+name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", address)
			kit.Must(t, err)
			defer conn.Close()
			began := time.Now()
			kit.Must(t, conn.SetReadDeadline(began.Add(15*time.Second)))
			_, err = fmt.Fprint(conn, text)
			kit.Must(t, err)
			if text != "" { // slow bytes do not extend the deadline
				stop := make(chan struct{})
				defer close(stop)
				go func() {
					drip := time.NewTicker(100 * time.Millisecond)
					defer drip.Stop()
					for {
						select {
						case <-stop:
							return
						case <-drip.C:
							_, _ = io.WriteString(conn, "x")
						}
					}
				}()
			}
			answered, err := io.ReadAll(conn)
			took := time.Since(began)
			if errors.Is(err, os.ErrDeadlineExceeded) || took < patience*9/10 || strings.Contains(string(answered), "200 OK") {
				t.Errorf("cut after %s: %q, %v; want the end after READ_HEADER_TIMEOUT, without an answer of 200", took, answered, err)
			}
			t.Logf("cut after %s: %q", took.Round(time.Millisecond), answered)
		})
	}
}

// Hop-by-hop headers reach no function: asking for another protocol is not a function's
// failure.
func TestAttackHopByHopHeaders(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	alice := i.Fresh(t, "alice", nil)
	user := s.UserID(alice)
	for name, headers := range map[string][]string{
		"an odd protocol":       {"Connection: Upgrade", "Upgrade: h\xc3\xa9"},
		"a tab in the protocol": {"Connection: Upgrade", "Upgrade: a\tb"},
		"no protocol":           {"Connection: Upgrade", "Upgrade: "},
		"websocket":             {"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="},
		"HTTP/2 over TCP":       {"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		"trailers":              {"Connection: TE", "TE: trailers"},
		"our own header":        {"Connection: Authorization, Accept, Content-Type, X-Csrf"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.In(t).Call(http.MethodGet, "/v1/me", alice, "", headers...)
			system.WantStatus(t, a, http.StatusOK)
			if got := a.JSON(t)["user_id"]; got != user {
				t.Errorf("answered about %v, want %s", got, user)
			}
		})
	}
	if log := s.Log.String(); strings.Contains(log, "function unreachable") {
		t.Errorf("a caller's header is logged as a function that is away: %s", log)
	}
}

// Browsers that used https once use it from then on, whatever the answer was.
func TestHTTPSOnly(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	for public, want := range map[string]string{"https://game.example": "max-age=31536000", "http://game.example": ""} {
		s := system.StartAt(t, i, "GATEWAY_URL="+public)
		for _, path := range []string{"/", "/docs", "/login", "/v1/me", "/nothing", "/%00", "/health/liveness"} {
			if got := s.Send(system.Request{Method: http.MethodGet, Path: path}).Header.Get("Strict-Transport-Security"); got != want {
				t.Errorf("%s%s: Strict-Transport-Security %q, want %q", public, path, got, want)
			}
		}
	}
}

// Pages run scripts of this site only, none of them inline or by eval, and send nothing to
// other sites. The viewer of the API's description writes styles of its own.
func TestAttackPagePolicy(t *testing.T) {
	t.Parallel()
	s := system.StartAt(t, system.NewCodeIssuer(t))
	for path, style := range map[string]string{"/": "'self'", "/docs": "'self' 'unsafe-inline'"} {
		policy := map[string]string{}
		for directive := range strings.SplitSeq(s.Call(http.MethodGet, path, "", "").Header.Get("Content-Security-Policy"), ";") {
			name, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
			policy[name] = sources
		}
		for name, want := range map[string]string{
			"default-src": "'none'", "script-src": "'self'", "connect-src": "'self'", "style-src": style,
			"base-uri": "'none'", "frame-ancestors": "'none'", "font-src": "", "frame-src": "", "worker-src": "", "object-src": "",
		} {
			if policy[name] != want {
				t.Errorf("%s: %s %s, want %s", path, name, policy[name], want)
			}
		}
	}
}
