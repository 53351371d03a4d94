package system

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Request is what Send sends: exactly these headers and bytes, with nothing added.
type Request struct {
	Method, Path, Body string
	Header             http.Header
	Token              string
	Chunked            bool // without Content-Length
}

// Send sends exactly r. Like every method that sends requests, it may be called on any
// goroutine: without a response, it reports an error of the test and returns an Answer
// without a status.
func (s *System) Send(r Request) Answer {
	s.T.Helper()
	var body io.Reader = strings.NewReader(r.Body)
	if r.Chunked {
		body = io.MultiReader(body) // hides its length
	}
	out, err := http.NewRequest(r.Method, s.URL+r.Path, body)
	if err != nil {
		s.T.Error(err)
		return Answer{}
	}
	maps.Copy(out.Header, r.Header)
	if r.Token != "" {
		out.Header.Set("Authorization", "Bearer "+r.Token)
	}
	// A redirect is an answer too, and would turn a POST into a GET.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s.Read(client.Do(out))
}

// Read reads what a client's Do returned.
func (s *System) Read(response *http.Response, err error) Answer {
	s.T.Helper()
	if err != nil {
		s.T.Errorf("no answer: %v", err)
		return Answer{}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.T.Errorf("%s breaks off after %q: %v", response.Status, body, err)
		return Answer{}
	}
	return Answer{response.StatusCode, response.Header, body}
}

// Post sends a body of JSON with a key to path.
func (s *System) Post(path, key, body string, headers ...string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, path, s.Writer, body, append(headers, "Idempotency-Key: "+key)...)
}

// As calls a function directly, with a statement of the gateway that identity is the
// caller. headers are "Name: value".
func (s *System) As(identity auth.Identity, function, method, path, body string, headers ...string) Answer {
	s.T.Helper()
	signer, err := auth.NewSigner(s.Settings().IdentitySigningKey)
	kit.Must(s.T, err)
	where, err := url.Parse(path)
	kit.Must(s.T, err)
	statement, err := signer.Sign(auth.Call{Function: function, Method: method, Path: where.Path}, identity)
	kit.Must(s.T, err)
	return s.Direct(function, method, path, body, append(headers, auth.StatementHeader+": "+statement)...)
}

// Direct calls a function without the gateway.
func (s *System) Direct(function, method, path, body string, headers ...string) Answer {
	s.T.Helper()
	out, err := http.NewRequestWithContext(context.Background(), method, "http://"+function+path, strings.NewReader(body))
	if err != nil {
		s.T.Error(err)
		return Answer{}
	}
	if body != "" {
		out.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		out.Header.Set(name, value)
	}
	return s.Read(s.invoke(out))
}

// AnotherShop may grant, but is not the purchase service.
var AnotherShop = auth.Identity{Subject: "another-shop", Roles: []string{auth.RoleEntitlementWriter}}

// Answer is a response that was read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON decodes the body; any other than a JSON object is an error of the test.
func (a Answer) JSON(t testing.TB) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Errorf("answered %d with a body that is not a JSON object: %q", a.Status, a.Body)
	}
	return v
}

// Text returns a string field of the body, "" without one.
func (a Answer) Text(field string) string {
	var v map[string]any
	_ = json.Unmarshal(a.Body, &v)
	text, _ := v[field].(string)
	return text
}

// Call sends a request to the gateway; headers are "Name: value".
func (s *System) Call(method, path, token, body string, headers ...string) Answer {
	s.T.Helper()
	request, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.T.Error(err)
		return Answer{}
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header[http.CanonicalHeaderKey(name)] = append(request.Header[http.CanonicalHeaderKey(name)], value)
		if http.CanonicalHeaderKey(name) == "Content-Type" {
			request.Header.Set(name, value)
		}
	}
	return s.Read(http.DefaultClient.Do(request))
}

// Metrics is what Prometheus reads of the process; it needs METRICS_ADDRESS.
func (s *System) Metrics() string {
	s.T.Helper()
	metrics, err := s.Runtime.Metrics()
	kit.Must(s.T, err)
	answer := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(s.T.Context(), http.MethodGet, "/metrics", http.NoBody))
	return answer.Body.String()
}
