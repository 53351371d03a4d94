package deadletter_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// tables are all tables that Put writes to.
var tables = []string{"notification.notification_dlq", "integration.settle_dlq"}

// Every message can be kept, whatever it contains: one that cannot would come back at each
// tick, and hold up the reconciling of its stream.
func TestAnyMessageIsKept(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	for _, table := range tables {
		// Random text, because the limit of an index row holds after compression.
		var long strings.Builder
		for range 4000 {
			long.WriteByte(byte('!' + rand.N(93)))
		}
		for name, text := range map[string]string{
			"4,000 characters": long.String(), "100,000 characters": strings.Repeat(long.String(), 25),
			"NULs": strings.Repeat("\x00", 4000), "broken UTF-8": strings.Repeat("\xff", 4000), "nothing": "",
		} {
			err := deadletter.Put(t.Context(), pool, table, deadletter.Letter{
				Data: []byte(name), EventID: text, Type: text, Reason: errors.New(text),
				Headers: map[string][]string{"Ce-Id": {text}, text: {text}},
			})
			if err != nil {
				t.Errorf("%s, an id of %s: %v", table, name, err)
			}
		}
	}
}

// A message that is redelivered, because its acknowledgement got lost, stays one letter;
// another message is another letter.
func TestEachMessageIsOneLetter(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	for _, table := range tables {
		first := deadletter.Letter{Data: []byte("data"), EventID: "e1", Type: "t", Reason: errors.New("r"), Headers: map[string][]string{"X-Delivery-Count": {"1"}}}
		again := first
		again.Headers, again.Reason = map[string][]string{"X-Delivery-Count": {"2"}}, errors.New("another word for it")
		other, empty, shifted := first, first, first
		other.EventID = "e2"
		empty.Data = nil
		shifted.EventID, shifted.Type = "e1t", ""
		for _, l := range []deadletter.Letter{first, again, other, empty, shifted, first} {
			if err := deadletter.Put(t.Context(), pool, table, l); err != nil {
				t.Errorf("%s: %v", table, err)
			}
		}
		var n int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil || n != 4 {
			t.Errorf("%s has %d letters, %v; want one for each of 4 messages", table, n, err)
		}
	}
}
