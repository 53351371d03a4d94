package functions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

const (
	grantsPath  = "/v1/entitlements/grants"
	revokesPath = "/v1/entitlements/revokes"
	eventsPath  = "/v1/events"
)

// in returns the system with its failures reported to a subtest.
func (s *system) in(t testing.TB) *system {
	copied := *s
	copied.t = t
	return &copied
}

// request is what send sends: exactly these headers and these bytes, nothing is
// added.
type request struct {
	method, path, body string
	header             http.Header
	token              string
	chunked            bool // without Content-Length
}

func (s *system) send(r request) answer {
	s.t.Helper()
	var body io.Reader = strings.NewReader(r.body)
	if r.chunked {
		body = io.MultiReader(body) // hides its length
	}
	out, err := http.NewRequest(r.method, s.url+r.path, body)
	must(s.t, err)
	maps.Copy(out.Header, r.header)
	if r.token != "" {
		out.Header.Set("Authorization", "Bearer "+r.token)
	}
	// A redirect is an answer too, and would turn a POST into a GET.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(out)
	must(s.t, err)
	return s.read(response)
}

func (s *system) read(response *http.Response) answer {
	s.t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(s.t, err)
	return answer{response.StatusCode, response.Header, body}
}

// post sends a body of JSON with a key to path.
func (s *system) post(path, key, body string, headers ...string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, path, s.writer, body, append(headers, "Idempotency-Key: "+key)...)
}

// as calls a function directly with a statement of the gateway's that identity
// calls. headers are "Name: value".
func (s *system) as(identity auth.Identity, function, method, path, body string, headers ...string) answer {
	s.t.Helper()
	signer, err := auth.NewSigner(s.runtime.Settings.IdentitySigningKey)
	must(s.t, err)
	where, err := url.Parse(path)
	must(s.t, err)
	statement, err := signer.Sign(auth.Call{Function: function, Method: method, Path: where.Path}, identity)
	must(s.t, err)
	return s.direct(function, method, path, body, append(headers, auth.StatementHeader+": "+statement)...)
}

// direct calls a function past the gateway.
func (s *system) direct(function, method, path, body string, headers ...string) answer {
	s.t.Helper()
	out, err := http.NewRequestWithContext(context.Background(), method, "http://"+function+path, strings.NewReader(body))
	must(s.t, err)
	if body != "" {
		out.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		out.Header.Set(name, value)
	}
	response, err := s.runtime.Invoke.RoundTrip(out)
	must(s.t, err)
	return s.read(response)
}

// wantProblem fails unless a is a whole problem with this status, and with this
// code when one is given.
func wantProblem(t testing.TB, a answer, status int, code string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if media := a.header.Get("Content-Type"); media != problem.ContentType {
		t.Errorf("Content-Type %q", media)
	}
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("not JSON: %q", a.body)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" || p.Code == "" || p.Status != status {
		t.Errorf("not a whole problem: %s", a.body)
	}
	if code != "" && p.Code != code {
		t.Errorf("code %q, want %q: %s", p.Code, code, a.body)
	}
	if once := a.header.Values("Cache-Control"); len(once) != 1 || once[0] != "no-store" {
		t.Errorf("Cache-Control %q", once)
	}
}

func wantStatus(t testing.TB, a answer, status int) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
}

// rows counts the rows of every table of every domain: what was refused must not
// have left anything anywhere.
func (s *system) rows() string {
	s.t.Helper()
	var counts []string
	for _, table := range []string{
		"entitlement.entitlements", "entitlement.idempotency_keys", "entitlement.refunded_purchases",
		"entitlement.entitlement_audit", "entitlement.outbox_events",
		"notification.processed_events", "notification.notifications", "notification.notification_dlq",
	} {
		counts = append(counts, fmt.Sprint(table, " ", s.count("SELECT count(*) FROM "+table)))
	}
	return strings.Join(counts, ", ")
}

// untouched runs do and fails when it left a row.
func (s *system) untouched(do func()) {
	s.t.Helper()
	before := s.rows()
	do()
	if after := s.rows(); after != before {
		s.t.Errorf("a refused request left rows:\nbefore %s\nafter  %s", before, after)
	}
}

// writerIdentity may grant, and is not the purchase service.
var writerIdentity = auth.Identity{Subject: "another-shop", Roles: []string{auth.RoleEntitlementWriter}}
