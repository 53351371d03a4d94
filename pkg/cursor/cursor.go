// Package cursor divides lists into pages of bounded size. A cursor is the position of a
// page's last item, as a text that callers hand back and need not understand.
package cursor

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Err is the answer to a cursor that no list made.
var Err = fault.New(fault.Malformed, "cursor_invalid", "The cursor was not made by this list; leave it out to start from the beginning.")

// MaxPage is how many items a page has at most.
const MaxPage = 100

// Limit returns how many items a page has when limit were asked for: 1 to MaxPage.
func Limit(limit int) int { return min(max(limit, 1), MaxPage) }

// At returns the cursor of the items after a position: a Text, Number or ID.
func At(position []byte) string { return base64.RawURLEncoding.EncodeToString(position) }

// Page cuts items, of which one more than limit was read, down to a page. position is
// that of the item at an index. next is the cursor of the page after, "" on the last one.
func Page[T any](items []T, limit int, position func(last int) []byte) (page []T, next string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], At(position(limit - 1))
}

// Text is a position by a name.
func Text(name string) []byte { return []byte(name) }

// Number is a position by a number.
func Number(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// ID is a position by an id.
func ID(id uuid.UUID) []byte { return id[:] }

// ReadText returns the name in a cursor, "" for "", or Err. A name is valid UTF-8 without
// NUL, which no database would take.
func ReadText(cursor string) (string, error) {
	position, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || !utf8.Valid(position) || bytes.IndexByte(position, 0) >= 0 {
		return "", Err
	}
	return string(position), nil
}

// ReadNumber returns the number in a cursor, first for "", or Err.
func ReadNumber(cursor string, first int64) (int64, error) {
	if cursor == "" {
		return first, nil
	}
	position, err := ReadText(cursor)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil {
		return 0, Err
	}
	return n, nil
}

// ReadID returns the id in a cursor, first for "", or Err.
func ReadID(cursor string, first uuid.UUID) (uuid.UUID, error) {
	if cursor == "" {
		return first, nil
	}
	position, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return uuid.Nil, Err
	}
	id, err := uuid.FromBytes(position)
	if err != nil {
		return uuid.Nil, Err
	}
	return id, nil
}
