// Package fault is the one error type that crosses from a domain to its
// caller. A domain knows neither HTTP nor CloudEvents, so it says what kind of
// thing went wrong and what to do next; package problem turns the kind into a
// status. Any other error is internal: its text is logged and never shown.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what went wrong, from the caller's point of view.
type Kind int

const (
	// Internal is the zero kind: a bug or an unknown error; its text stays in the log.
	Internal Kind = iota
	// Malformed input could not be read.
	Malformed
	// Invalid input was read and is not acceptable.
	Invalid
	// Unauthenticated callers have not said who they are.
	Unauthenticated
	// Forbidden callers are known and may not do this.
	Forbidden
	// NotFound is also the answer for what belongs to somebody else.
	NotFound
	// Conflict means that the request contradicts what is stored.
	Conflict
	// Precondition means that an If-Match did not match.
	Precondition
	// TooLarge input exceeds a size limit.
	TooLarge
	// UnsupportedMedia input has the wrong content type.
	UnsupportedMedia
	// RateLimited callers ask more often than they may; RetryAfter says when to go on.
	RateLimited
	// Unavailable means that a store or a peer did not answer. It may have been done all
	// the same: the same request with the same key finds out.
	Unavailable
)

// Error is what a domain returns when it can tell the caller what to do.
type Error struct {
	Kind Kind
	// Code is stable and made for programs, such as "idempotency_key_reused".
	Code string
	// Detail is one sentence for people: what is wrong and what to do.
	Detail string
	// RetryAfter, when above zero, tells when another try makes sense.
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

// Unreachable says that the named store cannot be reached now and that the
// same request may simply be sent again.
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
