// Package problem writes errors as application/problem+json (RFC 9457). It
// holds the only table from a kind of fault to an HTTP status. A 5xx never
// shows its cause: the caller gets a code and advice, the log gets the rest.
package problem

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// ContentType is the media type of every error answer.
const ContentType = "application/problem+json"

// Problem is the body of an error answer.
type Problem struct {
	Type   string  `json:"type" doc:"A URI reference for this kind of problem." example:"/docs#idempotency_key_reused"`
	Title  string  `json:"title" doc:"The status in words." example:"Conflict"`
	Status int     `json:"status" doc:"The HTTP status." example:"409"`
	Detail string  `json:"detail" doc:"What is wrong and what to do." example:"This Idempotency-Key was used for another request; use a new key."`
	Code   string  `json:"code" doc:"A stable code for programs." example:"idempotency_key_reused"`
	Errors []Field `json:"errors,omitempty" doc:"Which fields are wrong, when there are such."`

	retryAfter time.Duration
}

// Field is one fault of a request.
type Field struct {
	Location string `json:"location" doc:"Where it is." example:"body.user_id"`
	Message  string `json:"message" doc:"What is wrong." example:"expected length >= 1"`
}

var statusOf = map[fault.Kind]int{
	fault.Internal:         http.StatusInternalServerError,
	fault.Malformed:        http.StatusBadRequest,
	fault.Invalid:          http.StatusUnprocessableEntity,
	fault.Unauthenticated:  http.StatusUnauthorized,
	fault.Forbidden:        http.StatusForbidden,
	fault.NotFound:         http.StatusNotFound,
	fault.Conflict:         http.StatusConflict,
	fault.Precondition:     http.StatusPreconditionFailed,
	fault.TooLarge:         http.StatusRequestEntityTooLarge,
	fault.UnsupportedMedia: http.StatusUnsupportedMediaType,
	fault.RateLimited:      http.StatusTooManyRequests,
	fault.Unavailable:      http.StatusServiceUnavailable,
	fault.Overloaded:       http.StatusServiceUnavailable,
}

// New returns a problem with the title of status.
func New(status int, code, detail string) *Problem {
	return &Problem{Type: "/docs#" + code, Title: http.StatusText(status), Status: status, Detail: detail, Code: code}
}

// From turns any error into a problem. An error that is no fault is internal, and its
// text is omitted.
func From(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		return New(http.StatusInternalServerError, "internal_error",
			"Something went wrong on our side; the request may be sent again with the same key.")
	}
	p = New(statusOf[f.Kind], f.Code, f.Detail)
	p.retryAfter = f.RetryAfter
	return p
}

// Parse parses the problem in an answer; false if there is none.
func Parse(answer []byte) (*Problem, bool) {
	var p Problem
	err := json.Unmarshal(answer, &p)
	return &p, err == nil && p.Code != ""
}

// Error makes a Problem an error, so that it can be returned by handlers.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is application/problem+json, whatever the caller accepts.
func (p *Problem) ContentType(string) string { return ContentType }

// GetHeaders returns the headers that go with the problem.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	return h
}

// Write answers with the problem of err.
func Write(w http.ResponseWriter, err error) {
	p := From(err)
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", ContentType)
	w.Header().Del("Content-Length")
	w.WriteHeader(p.Status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // it is not HTML, and people read it
	_ = encoder.Encode(p)        // the client may have disconnected
}
