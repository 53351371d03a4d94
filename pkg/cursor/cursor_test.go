package cursor_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/cursor"
)

// A list of ships by name, read page by page.
func Example() {
	ships := []string{"Argo", "Beagle", "Calypso", "Endeavour", "Fram"}
	// after stands for a query: WHERE name > $1 ORDER BY name LIMIT $2
	after := func(name string, n int) (found []string) {
		for _, s := range ships {
			if s > name && len(found) < n {
				found = append(found, s)
			}
		}
		return found
	}
	list := func(from string, limit int) ([]string, string, error) {
		name, err := cursor.ReadText(from)
		if err != nil {
			return nil, "", err
		}
		limit = cursor.Limit(limit)
		found := after(name, limit+1)
		page, next := cursor.Page(found, limit, func(last int) []byte { return cursor.Text(found[last]) })
		return page, next, nil
	}
	next := ""
	for {
		var page []string
		page, next, _ = list(next, 2)
		fmt.Println(page)
		if next == "" {
			break
		}
	}
	_, _, err := list("not one of ours", 2)
	fmt.Println(err)
	// Output:
	// [Argo Beagle]
	// [Calypso Endeavour]
	// [Fram]
	// cursor_invalid: The cursor was not made by this list; leave it out to start from the beginning.
}

// A position is read back from its cursor, and page sizes are bounded.
func TestPositionsComeBack(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		if got, err := cursor.ReadNumber(cursor.At(cursor.Number(n)), 7); got != n || err != nil {
			t.Errorf("the number %d comes back as %d, %v", n, got, err)
		}
	}
	id := uuid.New()
	if got, err := cursor.ReadID(cursor.At(cursor.ID(id)), uuid.Max); got != id || err != nil {
		t.Errorf("the id %s comes back as %s, %v", id, got, err)
	}
	if page, next := cursor.Page([]int{1}, 1, nil); len(page) != 1 || next != "" {
		t.Errorf("the last page is %v with the cursor %q, want no cursor", page, next)
	}
	for limit, want := range map[int]int{-1: 1, 0: 1, 1: 1, 100: 100, 101: 100} {
		if got := cursor.Limit(limit); got != want {
			t.Errorf("a page of %d has %d, want %d", limit, got, want)
		}
	}
}

// A cursor that no list made is refused; an empty one means the beginning.
func TestForeignCursors(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	for _, foreign := range []string{"!", "a", encode([]byte{0xff}), encode([]byte("a\x00b")), encode([]byte("1e3")), encode([]byte("99999999999999999999"))} {
		if _, err := cursor.ReadNumber(foreign, 0); !errors.Is(err, cursor.Err) {
			t.Errorf("%q is read as a number: %v", foreign, err)
		}
		if _, err := cursor.ReadID(foreign, uuid.Max); !errors.Is(err, cursor.Err) {
			t.Errorf("%q is read as an id: %v", foreign, err)
		}
	}
	n, err := cursor.ReadNumber("", 7)
	id, err2 := cursor.ReadID("", uuid.Max)
	text, err3 := cursor.ReadText("")
	if n != 7 || id != uuid.Max || text != "" || errors.Join(err, err2, err3) != nil {
		t.Errorf("without a cursor a list begins at %d, %s, %q", n, id, text)
	}
}

// Callers may send anything as a cursor: it is refused, or its position is that of a cursor
// of ours.
func FuzzRead(f *testing.F) {
	f.Add(cursor.At(cursor.Text("Fram")))
	f.Add(cursor.At(cursor.Number(-1)))
	f.Add(cursor.At(cursor.ID(uuid.Max)))
	f.Fuzz(func(t *testing.T, sent string) {
		name, err := cursor.ReadText(sent)
		if again, _ := cursor.ReadText(cursor.At(cursor.Text(name))); err == nil && again != name || err != nil && !errors.Is(err, cursor.Err) {
			t.Errorf("%q is %q, %v", sent, name, err)
		}
		n, err := cursor.ReadNumber(sent, 7)
		if again, _ := cursor.ReadNumber(cursor.At(cursor.Number(n)), 7); err == nil && again != n || err != nil && !errors.Is(err, cursor.Err) {
			t.Errorf("%q is %d, %v", sent, n, err)
		}
		id, err := cursor.ReadID(sent, uuid.Nil)
		if again, _ := cursor.ReadID(cursor.At(cursor.ID(id)), uuid.Max); err == nil && again != id || err != nil && !errors.Is(err, cursor.Err) {
			t.Errorf("%q is %s, %v", sent, id, err)
		}
	})
}
