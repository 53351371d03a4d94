// Package idempotency makes a retried write safe: the first request with a key
// runs and its answer is stored in the same transaction as its effect; every
// later one with the same key and the same content gets that answer, byte for byte. The
// scope of a key is caller + operation + key, so no caller can replay another's answer.
//
// The rules follow the IETF draft draft-ietf-httpapi-idempotency-key-header,
// but a key reused for another request is answered 409, not 422.
package idempotency

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/gowebpki/jcs"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Header is the request header that carries the key.
const Header = "Idempotency-Key"

// ReplayedHeader is "true" on the stored answer of an earlier request.
const ReplayedHeader = "Idempotent-Replayed"

// MaxKeyLength is in bytes; keys are printable ASCII.
const MaxKeyLength = 255

// Errors that a store returns for a key that is taken.
var (
	ErrReused = fault.New(fault.Conflict, "idempotency_key_reused",
		"This Idempotency-Key was used for another request; send this one with a new key.")
	ErrInProgress = &fault.Error{
		Kind: fault.Conflict, Code: "idempotency_in_progress", RetryAfter: time.Second,
		Detail: "The first request with this Idempotency-Key is still running; send the same request again shortly.",
	}
)

// Key identifies a request.
type Key struct {
	Caller    string // from the signed statement, never from the request itself
	Operation string // such as "grant"
	Value     string // the Idempotency-Key
	Hash      []byte // Fingerprint of the request
}

// Response is a stored answer.
type Response struct {
	Status   int
	Body     []byte
	ETag     string
	Replayed bool // by an earlier request
}

// ParseKey parses the header's values: exactly one, bare or as a quoted
// structured-field string (RFC 9651). Its errors are fault.Malformed.
func ParseKey(values []string) (string, error) {
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", fault.New(fault.Malformed, "idempotency_key_missing",
			"Send an Idempotency-Key header: a unique string of up to %d characters, such as the purchase's id, and the same one on every retry.", MaxKeyLength)
	case len(values) > 1:
		return "", invalidKey("there are several; send one")
	}
	key := values[0]
	if strings.HasPrefix(key, `"`) {
		var err error
		if key, err = unquote(key); err != nil {
			return "", err
		}
	}
	return key, check(key)
}

// CheckKey validates a key that did not come in the header. Its errors are
// fault.Malformed.
func CheckKey(key string) error { return check(key) }

func check(key string) error {
	if key == "" {
		return invalidKey("it is empty")
	}
	if len(key) > MaxKeyLength {
		return invalidKey(fmt.Sprintf("it has %d characters; %d are allowed", len(key), MaxKeyLength))
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return invalidKey("it has characters other than printable ASCII")
		}
	}
	return nil
}

func unquote(quoted string) (string, error) {
	if len(quoted) < 2 || !strings.HasSuffix(quoted, `"`) {
		return "", invalidKey("its opening quote is not closed")
	}
	inner := quoted[1 : len(quoted)-1]
	var out strings.Builder
	for i := 0; i < len(inner); i++ {
		switch inner[i] {
		case '"':
			return "", invalidKey("a quote inside it is not escaped")
		case '\\':
			i++
			if i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return "", invalidKey(`a backslash may only precede " or \`)
			}
		}
		out.WriteByte(inner[i])
	}
	return out.String(), nil
}

func invalidKey(why string) error {
	return fault.New(fault.Malformed, "idempotency_key_invalid", "The Idempotency-Key cannot be used: %s.", why)
}

// Fingerprint is SHA-256 over the operation, the If-Match and the body in
// canonical JSON (RFC 8785), so that a retry may reorder and re-space its body.
// body must be valid JSON without duplicate names.
func Fingerprint(operation, ifMatch string, body []byte) ([]byte, error) {
	canonical, err := jcs.Transform(body)
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", operation, ifMatch, canonical))
	return sum[:], nil
}
