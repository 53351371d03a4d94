package id_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
)

// Ids made later are greater, within a process even in the same millisecond.
func TestNewGrows(t *testing.T) {
	t.Parallel()
	last := id.New()
	for range 10_000 {
		next := id.New()
		if next.Version() != 7 || next.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no UUIDv7", next)
		}
		if bytes.Compare(next[:], last[:]) <= 0 {
			t.Fatalf("%s was made after %s, but is not greater", next, last)
		}
		last = next
	}
}

// Before returns a bound: all ids of earlier milliseconds are less, and no later id is.
func TestBefore(t *testing.T) {
	t.Parallel()
	bound := id.Before(time.Now())
	for range 1000 {
		made := id.New()
		if bytes.Compare(made[:], bound[:]) < 0 {
			t.Fatalf("%s was made after the bound %s, but is less", made, bound)
		}
	}
	made := id.New()
	if later := id.Before(time.Now().Add(time.Second)); bytes.Compare(made[:], later[:]) >= 0 {
		t.Fatalf("%s is not before %s", made, later)
	}
	if bound.Version() != 7 || bound.Variant() != uuid.RFC4122 {
		t.Errorf("%s is no UUIDv7", bound)
	}
	for _, pair := range [][2]time.Time{
		{time.UnixMilli(1), time.UnixMilli(2)},
		{time.UnixMilli(255), time.UnixMilli(256)},
		{time.UnixMilli(0xffffffff), time.UnixMilli(0x100000000)},
		{time.Now(), time.Now().Add(time.Millisecond)},
	} {
		first, second := id.Before(pair[0]), id.Before(pair[1])
		if bytes.Compare(first[:], second[:]) >= 0 {
			t.Errorf("the bound is %s for %s and %s for %s, want it to grow", first, pair[0], second, pair[1])
		}
	}
}

// Derived ids grow with the time that they are of, say it like others, and differ by every
// part.
func TestDerived(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 2, 30, 0, 123_456_000, time.UTC)
	one := id.Derived(at, "e", "u_1")
	if again := id.Derived(at.Local(), "e", "u_1"); again != one {
		t.Errorf("%s and %s are of the same", one, again)
	}
	for _, other := range []uuid.UUID{id.Derived(at, "e", "u_2"), id.Derived(at, "eu_1"), id.Derived(at, "e", "u_1", "")} {
		if other == one || other.Version() != 7 || other.Variant() != uuid.RFC4122 {
			t.Errorf("%s beside %s", other, one)
		}
	}
	last := id.Before(at)
	for n := range 2000 {
		next := id.Derived(at.Add(time.Duration(n)*time.Microsecond), "e")
		if bytes.Compare(next[:], last[:]) <= 0 {
			t.Fatalf("%s is of a later microsecond than %s, and not greater", next, last)
		}
		last = next
	}
	if bound := id.Before(at.Add(3 * time.Millisecond)); bytes.Compare(last[:], bound[:]) >= 0 {
		t.Errorf("%s is not before %s", last, bound)
	}
}

func TestTextAndBack(t *testing.T) {
	t.Parallel()
	for range 100 {
		u := id.New()
		text := id.Text(id.Notification, u)
		if !strings.HasPrefix(text, "n_") {
			t.Fatal(text)
		}
		back, err := id.Parse(id.Notification, text)
		if err != nil || back != u {
			t.Fatalf("%s became %s: %v", u, back, err)
		}
	}
}

// Text that Text did not make is not found.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := id.Text(id.Notification, id.New())
	for _, text := range []string{
		"", "n", "n_", "_", good[2:], "_" + good[2:], "m" + good[1:], "nn" + good[1:], strings.ToUpper(good), good + "0", good[:len(good)-1],
		good + " ", " " + good, good + "\n", good[:5] + "u" + good[6:], "n_8zzzzzzzzzzzzzzzzzzzzzzzzz", id.New().String(), "n_\x00", "n_é", strings.Repeat("n", 10_000),
	} {
		if u, err := id.Parse(id.Notification, text); fault.Of(err) != fault.NotFound {
			t.Errorf("%q is parsed as %s: %v, want NotFound", text, u, err)
		}
	}
}

// What is read as an id is written like that, and like nothing else.
func FuzzParse(f *testing.F) {
	f.Add(id.Text(id.Transfer, uuid.Max))
	f.Add("t_00000000000000000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := id.Parse(id.Transfer, text)
		if err == nil && id.Text(id.Transfer, u) != text || err != nil && fault.Of(err) != fault.NotFound {
			t.Errorf("%q is %s, %v", text, u, err)
		}
	})
}
