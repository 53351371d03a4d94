// Package id makes the ids of this system: UUIDv7 in the database, where their
// order by time keeps indexes small, and TypeIDs (n_01h…) in the API, where
// their prefix is the kind of thing that they name.
package id

import (
	"encoding/binary"
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
