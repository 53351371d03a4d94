package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A URL without a route is answered with a problem too, and never with a redirect: that
// of ServeMux escapes twice and turns a%2Fb into a%252Fb, another user.
func TestUnknownURL(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for _, test := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/nothing", 404, "route_not_found"},
		{"POST", "/v1/entitlements", 404, "route_not_found"},
		{"GET", "/v1/users/u_1", 404, "route_not_found"},
		{"GET", "/v1/users/u_1/entitlements/", 404, "route_not_found"},
		{"GET", "/v1/users//entitlements", 404, "route_not_found"},
		{"POST", "/v1//entitlements/grants", 404, "route_not_found"},
		{"GET", "/v1/users/a%2Fb//entitlements", 404, "route_not_found"},
		{"POST", "/v1/./entitlements/grants", 404, "route_not_found"},
		{"POST", "/v1/entitlements/grants/", 404, "route_not_found"},
		{"POST", "/v1/Entitlements/grants", 404, "route_not_found"},
		{"GET", system.GrantsPath, 405, "method_not_allowed"},
		{"DELETE", system.GrantsPath, 405, "method_not_allowed"},
		{"OPTIONS", system.GrantsPath, 405, "method_not_allowed"},
		{"BREW", system.GrantsPath, 405, "method_not_allowed"},
		{"GET", system.EventsPath, 405, "method_not_allowed"},
		{"POST", "/v1/users/u_1/entitlements", 405, "method_not_allowed"},
		{"DELETE", "/v1/users/u_1/entitlements/item1", 405, "method_not_allowed"},
		{"POST", "/health/liveness", 405, "method_not_allowed"},
		{"POST", "/docs", 405, "method_not_allowed"},
		// No store could hold these ids.
		{"GET", "/v1/users/%00/entitlements", 400, "url_invalid"},
		{"GET", "/v1/users/a%00b/entitlements/item1", 400, "url_invalid"},
		{"GET", "/v1/users/%ff/entitlements", 400, "url_invalid"},
		{"GET", "/v1/users/%C0%AF/entitlements", 400, "url_invalid"},
		{"GET", "/v1/users/%ED%A0%80/entitlements", 400, "url_invalid"},
		{"GET", "/v1/users/u_1/entitlements?limit=%zz", 400, "url_invalid"},
		{"GET", "/v1/users/u_1/entitlements?cursor=%00", 400, "url_invalid"},
		{"GET", "/v1/users/u_1/entitlements?cursor=%ff", 400, "url_invalid"},
		{"GET", "/%00", 400, "url_invalid"},
		{"GET", "/v1/users/a%0Ab/entitlements", 422, "request_invalid"},
		{"GET", "/v1/users/a%1b[31m/entitlements", 422, "request_invalid"},
		{"GET", "/v1/users/" + strings.Repeat("x", 129) + "/entitlements", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements/" + strings.Repeat("%C3%A9", 129), 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements?unknown=1", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements?limit=1&limit=1", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements?limit=", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements?limit", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements?Limit=1", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements?limit=1&limit=2", 422, "request_invalid"},
		{"GET", "/v1/users/u_1/entitlements/item1?limit=1", 422, "request_invalid"},
		{"POST", system.GrantsPath + "?unknown=1", 422, "request_invalid"},
		{"POST", system.RevokesPath + "?user_id=u_2", 422, "request_invalid"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			s := s.In(t)
			header := http.Header{"Idempotency-Key": {"k1"}, "Content-Type": {"application/json"}}
			body := ""
			if test.method == http.MethodPost {
				body = system.ChangeBody("u_1", "item1", "purchase", "p_1")
			}
			s.Untouched(func() {
				a := s.Send(system.Request{Method: test.method, Path: test.path, Token: s.Writer, Header: header, Body: body})
				system.WantProblem(t, a, test.status, test.code)
				if allow := a.Header.Get("Allow"); (allow != "") != (test.status == 405) {
					t.Errorf("answered %d with Allow %q", test.status, allow)
				}
			})
		})
	}
	for path, allow := range map[string]string{system.GrantsPath: "POST", system.EventsPath: "POST", "/v1/users/u/entitlements": "GET", "/health/readiness": "GET"} {
		if got := s.Call(http.MethodPut, path, s.Writer, "{}").Header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", path, got, allow)
		}
	}
}

// Go's server answers these before any handler; it matters that they are refused and the
// next connection is served.
func TestBrokenRequests(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for name, text := range map[string]string{
		"broken escape":       "GET /v1/users/%zz/entitlements HTTP/1.1\r\nHost: x\r\n\r\n",
		"no host":             "GET /docs HTTP/1.1\r\n\r\n",
		"two hosts":           "GET /docs HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"NUL in a header":     "POST " + system.GrantsPath + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\x00b\r\n\r\n",
		"space in a name":     "GET /docs HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n",
		"both lengths":        "POST " + system.GrantsPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
		"negative length":     "POST " + system.GrantsPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"broken chunk":        "POST " + system.GrantsPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.Writer + "\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"another server":      "POST http://relay/tick HTTP/1.1\r\nHost: relay\r\n\r\n",
		"connect":             "CONNECT relay:80 HTTP/1.1\r\nHost: relay:80\r\n\r\n",
		"options for all":     "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"proxied to function": "POST http://grant/v1/entitlements/grants HTTP/1.1\r\nHost: grant\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			s.Untouched(func() {
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
				kit.Must(t, err)
				defer conn.Close()
				_, err = fmt.Fprint(conn, text)
				kit.Must(t, err)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				kit.Must(t, err)
				if response.StatusCode >= 500 || response.StatusCode < 400 && name != "options for all" {
					t.Errorf("answered %s, want 4xx", response.Status)
				}
			})
		})
	}
	system.WantStatus(t, s.Call(http.MethodGet, "/health/liveness", "", ""), http.StatusOK)
}

// A client that sends its body slowly is answered 408, and is not reported as a function
// that failed.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	kit.Must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n{", system.GrantsPath, s.Writer)
	kit.Must(t, err)
	kit.Must(t, conn.SetReadDeadline(time.Now().Add(15*time.Second)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	kit.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("answered %s, want 408", response.Status)
	}
}
