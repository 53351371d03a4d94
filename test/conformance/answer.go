package conformance

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/test/kit"
)

// callWithin bounds one request; one that takes longer hangs.
const callWithin = 30 * time.Second

const grantsPath = "/v1/entitlements/grants"

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// send sends a request to the gateway unchanged, and fails the test without an answer.
func (s *scene) send(request *http.Request) answer {
	s.t.Helper()
	a, err := s.try(request)
	kit.Must(s.t, err)
	return a
}

func (s *scene) try(request *http.Request) (answer, error) {
	ctx, cancel := context.WithTimeout(request.Context(), callWithin)
	defer cancel()
	began := time.Now()
	response, err := s.instance.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, body, time.Since(began)}, err
}

// ask makes a request; headers are "Name: value".
func (s *scene) ask(method, path, token, body string, headers ...string) *http.Request {
	s.t.Helper()
	request, err := http.NewRequest(method, "http://gateway"+path, strings.NewReader(body))
	kit.Must(s.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	return request
}

// grant makes a request to grant item to user, with key.
func (s *scene) grant(key, user, item string, headers ...string) *http.Request {
	s.t.Helper()
	return s.ask(http.MethodPost, grantsPath, s.writer, changeBody(user, item, "p_"+key), append(headers, "Idempotency-Key: "+key)...)
}

func changeBody(user, item, purchase string) string {
	body, err := json.Marshal(map[string]string{"user_id": user, "stock_keeping_unit": item, "reason": "purchase", "purchase_id": purchase})
	if err != nil {
		panic(err) // it holds only strings
	}
	return string(body)
}

// want fails the test unless the answer has this status.
func (a answer) want(t testing.TB, status int) {
	t.Helper()
	if a.status != status {
		t.Fatalf("answered %d, want %d: %v %s", a.status, status, a.header, a.body)
	}
}

// wantProblem fails the test unless the answer is this problem.
func (a answer) wantProblem(t testing.TB, status int, code string) {
	t.Helper()
	a.want(t, status)
	p, ok := problem.Parse(a.body)
	if !ok || p.Status != status || p.Code != code || a.header.Get("Content-Type") != problem.ContentType {
		t.Errorf("answered %q %s, want the problem %s", a.header.Get("Content-Type"), a.body, code)
	}
}

// json decodes the body.
func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("answered %d with a body that is not JSON: %q", a.status, a.body)
	}
	return v
}
