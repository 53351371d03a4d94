package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Every kind of fault has its status, also when the fault is wrapped.
func TestStatusOfKinds(t *testing.T) {
	t.Parallel()
	for kind, status := range map[fault.Kind]int{
		fault.Malformed: 400, fault.Unauthenticated: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.Conflict: 409,
		fault.Precondition: 412, fault.TooLarge: 413, fault.UnsupportedMedia: 415, fault.Invalid: 422, fault.Internal: 500, fault.Unavailable: 503, fault.Overloaded: 503,
	} {
		err := fault.New(kind, "some_code", "Some detail.")
		for _, err := range []error{err, fmt.Errorf("wrapped: %w", err), errors.Join(errors.New("other"), err)} {
			p := problem.From(err)
			if p.Status != status || p.Title != http.StatusText(status) {
				t.Errorf("kind %d has status %d %s, want %d", kind, p.Status, p.Title, status)
			}
			if kind != fault.Internal && (p.Code != "some_code" || p.Detail != "Some detail." || p.Type != "/docs#some_code") {
				t.Errorf("the problem is %+v, want the fault's code and detail", p)
			}
		}
	}
}

// The cause of an error is for the log, not for the caller.
func TestCauseIsHidden(t *testing.T) {
	t.Parallel()
	const secret = "password=hunter2"
	for _, err := range []error{
		errors.New(secret), fmt.Errorf("sql: %w", errors.New(secret)), fault.New(fault.Internal, secret, "%s", secret),
		fault.Unreachable("The database", errors.New(secret)),
		&fault.Error{Kind: fault.Invalid, Code: "code", Detail: "Detail.", Cause: errors.New(secret)},
		nil,
	} {
		w := httptest.NewRecorder()
		problem.Write(w, err)
		if strings.Contains(w.Body.String(), secret) || strings.Contains(fmt.Sprint(w.Header()), secret) {
			t.Errorf("%v is shown: %s", err, w.Body)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		header map[string]string
	}{
		{fault.New(fault.Unauthenticated, "c", "d"), map[string]string{"WWW-Authenticate": "Bearer", "Retry-After": ""}},
		{fault.New(fault.NotFound, "c", "d"), map[string]string{"WWW-Authenticate": "", "Retry-After": ""}},
		// Retry-After is in whole seconds, and never too early.
		{&fault.Error{Kind: fault.Unavailable, Code: "c", Detail: "d", RetryAfter: time.Millisecond}, map[string]string{"Retry-After": "1"}},
		{&fault.Error{Kind: fault.Unavailable, Code: "c", Detail: "d", RetryAfter: time.Second}, map[string]string{"Retry-After": "1"}},
		{&fault.Error{Kind: fault.Conflict, Code: "c", Detail: "d", RetryAfter: 1001 * time.Millisecond}, map[string]string{"Retry-After": "2"}},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "5") // of an answer that failed half-way
		w.Header().Set("Content-Type", "application/json")
		problem.Write(w, test.err)
		if w.Header().Get("Content-Type") != problem.ContentType || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Length") != "" {
			t.Errorf("%v: %v", test.err, w.Header())
		}
		for name, want := range test.header {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%v: %s %q, want %q", test.err, name, got, want)
			}
		}
		var members map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &members); err != nil || members["status"] != float64(w.Code) {
			t.Errorf("the body is %s, want JSON with the status %d", w.Body, w.Code)
		}
		for _, member := range []string{"type", "title", "detail", "code"} {
			if text, _ := members[member].(string); text == "" {
				t.Errorf("%s is missing: %s", member, w.Body)
			}
		}
	}
}

// From returns a problem as it is, also when it is wrapped.
func TestFromProblem(t *testing.T) {
	t.Parallel()
	p := problem.New(http.StatusGatewayTimeout, "timeout", "It took too long.")
	if got := problem.From(fmt.Errorf("wrapped: %w", p)); got != p {
		t.Errorf("got %+v, want %+v", got, p)
	}
}
