package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// Anybody who may list FAILED rows may send any text as a cursor. What is accepted is a
// place, and a time that Postgres takes.
func FuzzReadPlace(f *testing.F) {
	f.Add(lease.Place(time.Now(), uuid.Max))
	f.Add("1 " + uuid.NewString())
	f.Add("9223372036854775807 " + uuid.NewString())
	f.Add("-1 " + uuid.NewString())
	f.Add("0x10 " + uuid.NewString())
	f.Fuzz(func(t *testing.T, text string) {
		at, id, err := lease.ReadPlace(text)
		if err != nil {
			if !errors.Is(err, cursor.Err) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if at.Year() < 1970 || at.Year() > 9999 {
			t.Errorf("%q is at %s", text, at)
		}
		if again, same, err := lease.ReadPlace(lease.Place(at, id)); err != nil || !again.Equal(at) || same != id {
			t.Errorf("%q is %s %s, and again %s %s, %v", text, at, id, again, same, err)
		}
	})
}
