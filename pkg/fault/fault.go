// Package fault is the one error type that crosses from a domain to its
// caller. A domain knows neither HTTP nor CloudEvents, so it returns the kind of failure
// and what to do next; package problem maps the kind to a status. Any other error is
// internal: its text is logged and never shown.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies a failure from the caller's point of view.
type Kind int

const (
	// Internal is the zero kind: a bug or an unknown error; its text stays in the log.
	Internal Kind = iota
	// Malformed input could not be read.
	Malformed
	// Invalid input was read and is not acceptable.
	Invalid
	// Unauthenticated callers have no valid credentials.
	Unauthenticated
	// Forbidden callers are authenticated and lack the right.
	Forbidden
	// NotFound is also the kind for another user's resources.
	NotFound
	// Conflict means that the request contradicts what is stored.
	Conflict
	// Precondition means that an If-Match did not match.
	Precondition
	// TooLarge input exceeds a size limit.
	TooLarge
	// UnsupportedMedia input has the wrong content type.
	UnsupportedMedia
	// RateLimited callers exceed their limit; RetryAfter is the time to wait.
	RateLimited
	// Unavailable means that a store or a peer did not answer. The change may have
	// happened all the same: the same request with the same key finds out.
	Unavailable
	// Overloaded means that this process has more to do than it can. Nothing was done, and
	// nothing is logged: a line for each refusal would be more load.
	Overloaded
)

// Error is an error that a caller can act on.
type Error struct {
	Kind Kind
	// Code is stable and for programs, such as "idempotency_key_reused".
	Code string
	// Detail is one sentence for people: what is wrong and what to do.
	Detail string
	// RetryAfter, when above zero, is the time after which a retry makes sense.
	RetryAfter time.Duration
	// Cause is logged and never shown.
	Cause error
}

// New returns an Error without a cause; format and args make its Detail.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// DefaultRetryAfter is suggested to callers when a store cannot be reached.
const DefaultRetryAfter = 2 * time.Second

// Unreachable is the error for a store that cannot be reached now; the same request may
// simply be sent again.
func Unreachable(store string, cause error) *Error {
	return &Error{
		Kind:       Unavailable,
		Code:       "unavailable",
		Detail:     store + " cannot be reached at the moment; send the same request again.",
		RetryAfter: DefaultRetryAfter,
		Cause:      cause,
	}
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Code + ": " + e.Detail + ": " + e.Cause.Error()
	}
	return e.Code + ": " + e.Detail
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Of returns the kind of err: that of the first Error in its chain, or Internal.
func Of(err error) Kind {
	var f *Error
	if errors.As(err, &f) {
		return f.Kind
	}
	return Internal
}

// Detail is what callers may be told of err: the Detail of a fault, and of any other
// error only that there was one.
func Detail(err error) string {
	var f *Error
	if errors.As(err, &f) {
		return f.Detail
	}
	return "It failed; the log says why."
}
