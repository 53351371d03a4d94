// Package id makes the ids of this system: UUIDv7 in the database, where their
// order by time keeps indexes small, and TypeIDs (n_01h…) in the API, where
// their prefix is the kind of thing that they name.
package id

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.jetify.com/typeid"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Prefixes of TypeIDs.
const (
	Act          = "act"
	Match        = "m"
	Notification = "n"
	Transfer     = "t"
	User         = "u"
)

// New returns a fresh UUIDv7. It fails only when the system has no randomness.
func New() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Before returns the smallest UUIDv7 that could be made at t: ids made earlier
// are less than it.
func Before(t time.Time) uuid.UUID {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(t.UnixMilli())<<16)
	u[6] = 0x70
	u[8] = 0x80
	return u
}

// Derived returns the UUIDv7 of what happened at a time, to 244 ns, and is named by parts:
// whoever makes it, and however often, it is the same.
func Derived(at time.Time, parts ...string) uuid.UUID {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	u := Before(at)
	fraction := uint64(at.Nanosecond()) % 1e6 << 12 / 1e6 // of a millisecond, RFC 9562, 6.2
	u[6] |= byte(fraction >> 8)
	u[7] = byte(fraction)
	copy(u[8:], sum.Sum(nil))
	u[8] = u[8]&0x3f | 0x80
	return u
}

// Text writes a UUID as a TypeID.
func Text(prefix string, u uuid.UUID) string {
	t, err := typeid.FromUUIDBytesWithPrefix(prefix, u[:])
	if err != nil {
		panic("id: prefix " + prefix + ": " + err.Error())
	}
	return t.String()
}

// Parse parses a TypeID with the given prefix. Its error is fault.NotFound, because an id
// that we did not make names nothing.
func Parse(prefix, text string) (uuid.UUID, error) {
	t, err := typeid.FromString(text)
	if err != nil || t.Prefix() != prefix {
		return uuid.Nil, fault.New(fault.NotFound, "not_found", "There is no %q.", prefix+"_…")
	}
	return uuid.FromBytes(t.UUIDBytes())
}
