package agones_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/agones"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// answering returns an allocator whose service answers with handle.
func answering(t testing.TB, handle http.HandlerFunc) *agones.Allocator {
	t.Helper()
	s := newStandIn(nil)
	t.Cleanup(s.Close)
	s.wrap(func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) { handle(w, r) })
	return allocator(t, agones.Options{URL: s.URL, Fleet: "arena", Timeout: patience})
}

func fixed(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

// The answer that no server is free is ErrNoServer, whatever its HTTP status is.
func TestNoServer(t *testing.T) {
	t.Parallel()
	_, o := start(t, 0)
	if _, err := allocator(t, o).Allocate(t.Context(), match()); !errors.Is(err, matchmaking.ErrNoServer) {
		t.Errorf("empty fleet: %v", err)
	}
	const message = "there is no available GameServer to allocate"
	for name, handle := range map[string]http.HandlerFunc{
		"429":             func(w http.ResponseWriter, _ *http.Request) { refuse(w, 429, 8, message) },
		"503":             func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, 14, message) },
		"404":             func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, 5, message) },
		"409":             func(w http.ResponseWriter, _ *http.Request) { refuse(w, 409, 6, message) },
		"another message": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 429, 8, "none") },
		"200": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, allocationResponse{Ports: []port{}, Addresses: []any{}})
		},
	} {
		if session, err := answering(t, handle).Allocate(t.Context(), match()); !errors.Is(err, matchmaking.ErrNoServer) {
			t.Errorf("%s: %v, %v; want ErrNoServer", name, session, err)
		}
	}
}

// Contention is an error of its own, and the next call may succeed.
func TestContention(t *testing.T) {
	t.Parallel()
	s, o := start(t, 1)
	s.contention = 2
	a, m := allocator(t, o), match()
	for range 2 {
		_, err := a.Allocate(t.Context(), m)
		if err == nil || errors.Is(err, matchmaking.ErrNoServer) || !strings.Contains(err.Error(), "at once") {
			t.Errorf("contention: %v, want an error other than ErrNoServer", err)
		}
	}
	_, err := a.Allocate(t.Context(), m)
	kit.Must(t, err)
}

// An answer that is not one of Agones is an error other than ErrNoServer.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	good := `{"gameServerName":"g","address":"203.0.113.7","ports":[{"name":"game","port":7203}]}`
	if _, err := answering(t, fixed(200, good)).Allocate(t.Context(), match()); err != nil {
		t.Errorf("the good one: %v", err)
	}
	for name, handle := range map[string]http.HandlerFunc{
		"empty":              fixed(200, ""),
		"no content":         fixed(204, ""),
		"garbage":            fixed(200, "<html>Welcome</html>"),
		"garbage after it":   fixed(200, good+"}"),
		"another object":     fixed(200, `{}`),
		"null":               fixed(200, `null`),
		"a list":             fixed(200, "["+good+"]"),
		"another type":       fixed(200, `{"gameServerName":"g","address":1,"ports":[{"name":"game","port":7203}]}`),
		"without a name":     fixed(200, strings.Replace(good, `"g"`, `""`, 1)),
		"without an address": fixed(200, strings.Replace(good, "203.0.113.7", "", 1)),
		"without ports":      fixed(200, `{"gameServerName":"g","address":"203.0.113.7","ports":[]}`),
		"port 0":             fixed(200, strings.Replace(good, "7203", "0", 1)),
		"port -1":            fixed(200, strings.Replace(good, "7203", "-1", 1)),
		"port 65536":         fixed(200, strings.Replace(good, "7203", "65536", 1)),
		"huge":               fixed(200, good+strings.Repeat(" ", 64<<10)),
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for spaces := []byte(strings.Repeat(" ", 1<<10)); ; {
				if _, err := w.Write(spaces); err != nil {
					return
				}
			}
		},
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(good))
		},
		"proxy's limit":       fixed(429, "slow down"),
		"proxy's limit, JSON": fixed(429, `{"message":"slow down"}`),
		"unavailable":         func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, 14, "upstream is down") },
		"refused":             func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, 422, "GameServerAllocation is invalid") },
		"201":                 fixed(201, good),
	} {
		session, err := answering(t, handle).Allocate(t.Context(), match())
		if err == nil || errors.Is(err, matchmaking.ErrNoServer) || session.Server != "" {
			t.Errorf("%s: %v, %v", name, session, err)
			continue
		}
		if name == "huge" || name == "endless" {
			if !strings.Contains(err.Error(), "exceeds 65536 bytes") {
				t.Errorf("%s: %v", name, err)
			}
		}
		oneLine(t, name, err)
	}
}

// Redirects are not followed: requests go to the allocator service only.
func TestRedirect(t *testing.T) {
	t.Parallel()
	target := newStandIn(nil)
	t.Cleanup(target.Close)
	target.fleet("default", "arena", 1)
	for _, code := range []int{301, 302, 303, 307, 308} {
		a := answering(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target.URL+"/gameserverallocation", code)
		})
		if session, err := a.Allocate(t.Context(), match()); err == nil {
			t.Errorf("redirect %d: got %v, want an error", code, session)
		}
	}
	if n := target.called(); n != 0 {
		t.Errorf("%d calls followed a redirect, want none", n)
	}
}

// hang answers nothing until the caller hangs up. HTTP/1 notices that only while reading.
func hang(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// A call to a service that does not answer ends at the timeout, or when ctx ends.
func TestSlowService(t *testing.T) {
	t.Parallel()
	s, o := start(t, 1)
	s.wrap(hang)
	const short = 100 * time.Millisecond
	check := func(name string, ctx context.Context, o agones.Options) {
		began := time.Now()
		_, err := allocator(t, o).Allocate(ctx, match())
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > patience/2 {
			t.Errorf("%s: %v after %s, want DeadlineExceeded", name, err, took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	check("context", ctx, o)
	o.Timeout = short
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	check("timeout", ctx, o)
	s.wrap(func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		_, _ = w.Write([]byte(`{"gameServerName":`))
		_ = http.NewResponseController(w).Flush()
		hang(w, r, nil)
	})
	check("half an answer", ctx, o)
}

// The default timeout is 2 s.
func TestDefaultTimeout(t *testing.T) {
	t.Parallel()
	s, o := start(t, 1)
	s.wrap(hang)
	o.Timeout = 0
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	_, err := allocator(t, o).Allocate(ctx, match())
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took < 2*time.Second || took > patience/2 {
		t.Errorf("%v after %s, want DeadlineExceeded after 2s", err, took)
	}
}

// Text that the other side sends is in the error as one short line, fit for the log.
func TestErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	rude := strings.Repeat("no\r\n\x1b[31m\u2028é\xff", 5000)
	for name, handle := range map[string]http.HandlerFunc{
		"message": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, 13, rude) },
		"body":    fixed(500, rude),
		"name": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, allocationResponse{GameServerName: rude, Ports: []port{}, Addresses: []any{}})
		},
		"malformed header": func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = connection.Write([]byte("HTTP/1.1 200 OK\r\nno\x1b[31m\rheader" + strings.Repeat("é", 1000) + "\r\n\r\n"))
				_ = connection.Close()
			}
		},
	} {
		_, err := answering(t, handle).Allocate(t.Context(), match())
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		oneLine(t, name, err)
	}
}

func oneLine(t testing.TB, name string, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 512 || strings.ContainsAny(text, "\r\n\x1b\u2028") || !strings.HasPrefix(text, "agones: ") || strings.ToValidUTF8(text, "") != text {
		t.Errorf("%s: %q, want one short line", name, text)
	}
}

// Whatever the service answers, players are told of a whole game server or of none.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{`{}`, `null`, `{"gameServerName":"a","address":"10.0.0.1","ports":[{"name":"p","port":7000}]}`, `{"gameServerName":"a","ports":[{"port":65536}]}`, `{"code":8,"message":"x"}`} {
		f.Add(200, body)
		f.Add(429, body)
	}
	var code int
	var body string
	a := answering(f, func(w http.ResponseWriter, r *http.Request) { fixed(code, body)(w, r) })
	f.Fuzz(func(t *testing.T, status int, text string) {
		if status < 200 || status > 599 {
			return
		}
		code, body = status, text
		session, err := a.Allocate(t.Context(), match())
		whole := session.Server != "" && session.Address != "" && len(session.Ports) > 0
		for _, p := range session.Ports {
			whole = whole && p.Port > 0 && p.Port < 1<<16
		}
		if (err == nil) != whole {
			t.Errorf("%d %q: %+v, %v", status, text, session, err)
		}
	})
}
