package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

// ask sends r to handler by a function URL and by an HTTP API.
func ask(t *testing.T, handler http.Handler, r request) map[string]httpAnswer {
	t.Helper()
	a := &adapter{local: transport.Local{"gateway": handler}, front: "gateway", log: slog.New(slog.DiscardHandler)}
	answers := map[string]httpAnswer{}
	for kind, event := range map[string][]byte{"url": r.url(), "api": r.api()} {
		answered, err := a.handle(context.Background(), event)
		kit.Must(t, err)
		var got httpAnswer
		switch answered := answered.(type) {
		case *events.LambdaFunctionURLStreamingResponse:
			body, err := io.ReadAll(answered.Body)
			kit.Must(t, err)
			kit.Must(t, answered.Close())
			got = httpAnswer{StatusCode: answered.StatusCode, Headers: answered.Headers, Cookies: answered.Cookies, Body: string(body)}
		case *events.APIGatewayV2HTTPResponse:
			text, err := json.Marshal(answered)
			kit.Must(t, err)
			kit.Must(t, json.Unmarshal(text, &got))
		}
		answers[kind] = got
	}
	return answers
}

// The function sees the request that the client sent.
func TestRequest(t *testing.T) {
	t.Parallel()
	binary := "\x00\xff binary"
	r := request{
		method: http.MethodPut, path: "/a%2Fb/c%20d;e=f", query: "x=1&x=2&y=%20+&z", sourceIP: "2001:db8::1",
		body: base64.StdEncoding.EncodeToString([]byte(binary)), encoded: true,
		headers: map[string]string{
			"accept": "text/html, application/json", "x-forwarded-for": "198.51.100.7, 203.0.113.9", "cookie": "a=1", "content-length": "99", "connection": "close",
		},
		cookies: []string{"a=1", "b=2", "a=3"},
	}
	ask(t, http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		for name, pair := range map[string][2]string{
			"method": {got.Method, "PUT"}, "path": {got.URL.EscapedPath(), r.path}, "decoded path": {got.URL.Path, "/a/b/c d;e=f"},
			"query": {got.URL.RawQuery, r.query}, "RequestURI": {got.RequestURI, r.path + "?" + r.query}, "peer": {got.RemoteAddr, "[2001:db8::1]:0"},
			"Accept": {got.Header.Get("Accept"), r.headers["accept"]}, "X-Forwarded-For": {got.Header.Get("X-Forwarded-For"), r.headers["x-forwarded-for"]},
			"Cookie": {strings.Join(got.Header.Values("Cookie"), "|"), "a=1; b=2; a=3"}, "Host header": {got.Header.Get("Host"), ""}, "protocol": {got.Proto, "HTTP/1.1"},
			"Connection": {got.Header.Get("Connection") + got.Header.Get("Content-Length"), ""},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s is %q, want %q", name, pair[0], pair[1])
			}
		}
		if got.Host != urlHost && got.Host != apiHost {
			t.Errorf("host %q", got.Host)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil || string(body) != binary || got.ContentLength != int64(len(binary)) {
			t.Errorf("body %q of %d, %v", body, got.ContentLength, err)
		}
	}), r)
}

// An event is refused, or its request has the client's path, query and body.
func FuzzNewRequest(f *testing.F) {
	f.Add("POST", "/v1/a%20b", "x=1", "e30=", true, "198.51.100.1", "HTTP/1.1", "Host: a")
	f.Add("GET", "/%2f//", "%", "{}", false, "", "", "Connection: close")
	f.Fuzz(func(t *testing.T, method, path, query, body string, base bool, address, protocol, header string) {
		name, value, _ := strings.Cut(header, ": ")
		e := events.LambdaFunctionURLRequest{RawPath: path, RawQueryString: query, Body: body, IsBase64Encoded: base, Headers: map[string]string{name: value}}
		e.RequestContext.HTTP = events.LambdaFunctionURLRequestContextHTTPDescription{Method: method, SourceIP: address, Protocol: protocol}
		r, err := newRequest(t.Context(), "gateway", e)
		if err != nil {
			return
		}
		got, err := io.ReadAll(r.Body)
		kit.Must(t, err)
		want := []byte(body)
		if base {
			want, err = base64.StdEncoding.DecodeString(body)
		}
		if err != nil || string(got) != string(want) || r.URL.RawQuery != query || r.URL.RawPath != path || r.Header.Get("Connection") != "" {
			t.Errorf("%+v becomes %s with body %q", e, r.URL, got)
		}
	})
}

// The client sees the answer that the function gave.
func TestAnswer(t *testing.T) {
	t.Parallel()
	binary := "\x1f\x8b\x00\xff"
	for kind, a := range ask(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Add("Set-Cookie", "a=1; Path=/; Expires=Sat, 21 Nov 2026 10:00:00 GMT")
		h.Add("Set-Cookie", "b=2")
		h.Add("Vary", "Accept")
		h.Add("Vary", "Cookie")
		h.Set("Content-Length", "4")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, binary)
	}), request{method: http.MethodGet, path: "/"}) {
		body := a.Body
		if a.IsBase64Encoded {
			decoded, err := base64.StdEncoding.DecodeString(body)
			kit.Must(t, err)
			body = string(decoded)
		}
		if a.StatusCode != http.StatusTeapot || body != binary || a.IsBase64Encoded != (kind == "api") {
			t.Errorf("%s: answered %+v, want 418 with the body as it was", kind, a)
		}
		if want := []string{"a=1; Path=/; Expires=Sat, 21 Nov 2026 10:00:00 GMT", "b=2"}; !slices.Equal(a.Cookies, want) || a.Headers["Vary"] != "Accept, Cookie" || len(a.Headers) != 1 {
			t.Errorf("%s: cookies %q, headers %v", kind, a.Cookies, a.Headers)
		}
	}
	for kind, a := range ask(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") }), request{method: http.MethodHead, path: "/"}) {
		if a.StatusCode != http.StatusOK || a.Body != "" {
			t.Errorf("HEAD by %s: %+v", kind, a)
		}
	}
	for kind, a := range ask(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, maxAnswer+1))
	}), request{method: http.MethodGet, path: "/"}) {
		if want := map[string]int{"url": 200, "api": 500}[kind]; a.StatusCode != want {
			t.Errorf("an answer that is too large, by %s: %d", kind, a.StatusCode)
		}
	}
}

// An HTTP API gives up after 30 s, whatever Lambda allows.
func TestHTTPAPITimeout(t *testing.T) {
	t.Parallel()
	var left time.Duration
	a := &adapter{local: transport.Local{"gateway": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		left = time.Until(deadline)
	})}, front: "gateway"}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for kind, event := range map[string][]byte{"url": request{path: "/", method: http.MethodGet}.url(), "api": request{path: "/", method: http.MethodGet}.api()} {
		_, err := a.handle(ctx, event)
		kit.Must(t, err)
		if most := map[string]time.Duration{"url": 5*time.Minute - answerMargin, "api": apiGatewayTimeout - answerMargin}[kind]; left > most || left < most-5*time.Second {
			t.Errorf("a function has %s, by %s", left, kind)
		}
	}
}

// A panic ends one request, and not the process.
func TestPanic(t *testing.T) {
	t.Parallel()
	rt := fn.NewRuntime(settings.Settings{}, slog.New(slog.DiscardHandler), nil)
	kit.Must(t, rt.Host(fn.Function{Name: "gateway", New: func(e *fn.Env) error {
		e.Mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("planted") })
		e.Mux.HandleFunc("GET /abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		return nil
	}}))
	handler := rt.Here["gateway"]
	for kind, a := range ask(t, handler, request{method: http.MethodGet, path: "/panic"}) {
		if a.StatusCode != http.StatusInternalServerError || a.json(t)["code"] != "internal_error" || strings.Contains(a.Body, "planted") {
			t.Errorf("%s: answered %+v, want 500 without the cause", kind, a)
		}
	}
	for kind, a := range ask(t, handler, request{method: http.MethodGet, path: "/abort"}) {
		if a.StatusCode != http.StatusBadGateway {
			t.Errorf("aborted, by %s: %+v", kind, a)
		}
	}
}
