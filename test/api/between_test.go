package api_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/test/system"
)

// Whatever a platform's proxy answers in place of a function reaches clients as a
// problem; a function's own answers reach them unchanged.
func TestProxyAnswersInPlaceOfAFunction(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	s.Seen.StandIns = true
	proxy := s.StandIn("grant")
	for name, test := range map[string]struct {
		status      int
		media, body string
		want        int
		code        string
	}{
		"queue-proxy's timeout":  {504, "text/plain; charset=utf-8", "request timeout", 504, "timeout"},
		"queue-proxy is full":    {503, "text/plain; charset=utf-8", "pending request queue full", 503, "unavailable"},
		"a gateway without pods": {503, "", "no healthy upstream", 503, "unavailable"},
		"bad gateway, a page":    {502, "text/html", "<h1>Bad Gateway</h1>", 503, "unavailable"},
		"a host that is not":     {404, "", "", 503, "unavailable"},
		"the function's own 404": {404, problem.ContentType, `{"type":"/docs#x","status":404,"code":"own"}`, 404, "own"},
		"any other error":        {500, "text/plain", "oops", 503, "unavailable"},
		"the function's own 503": {503, problem.ContentType, `{"type":"/docs#x","status":503,"code":"own"}`, 503, "own"},
		"the function's own 500": {500, problem.ContentType + "; charset=utf-8", `{"type":"/docs#x","status":500,"code":"own"}`, 500, "own"},
		"the function's own 418": {418, "text/plain", "teapot", 418, ""},
		"no error":               {200, "text/plain", "fine", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			proxy.Answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.media)
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			a := s.Grant("k", "u_1", "item1")
			system.WantStatus(t, a, test.want)
			p, isProblem := problem.Parse(a.Body)
			switch {
			case isProblem != (test.code != "") || isProblem && p.Code != test.code:
				t.Errorf("answered %s, want the problem %q", a.Body, test.code)
			case test.code == "" && string(a.Body) != test.body:
				t.Errorf("answered %q, want %q unchanged", a.Body, test.body)
			case test.want == 503 && test.code == "unavailable" && a.Header.Get("Retry-After") == "":
				t.Error("Retry-After is missing")
			}
		})
	}
}
