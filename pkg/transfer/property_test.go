package transfer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/transfer"
)

const (
	raceTransfers = 1_500 // unless TRANSFER_RACE is set
	raceAccounts  = 50
	raceClients   = 16
	raceReplays   = 500 // keys that are sent once more at the end
)

// Callers transfer in all directions, reverse, hang up, and send keys again, at once and
// for other requests. Meanwhile backends are killed, connections are cut, and the watchdog
// ends all it can. Every snapshot adds up, and in the end every answer was true.
func TestWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	total := raceTransfers
	if text := os.Getenv("TRANSFER_RACE"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWire(t)
	c := &crowd{arena: newArena(t, 12, "cache_statement", w.through), owners: map[int64]string{}, dollars: map[int64]bool{}}
	c.left.Store(int64(total))
	for i := range raceAccounts {
		currency, owner := "EUR", fmt.Sprint("u_", i)
		if i%10 == 0 {
			currency = "USD"
		}
		account := c.openIn(currency, owner, "100")
		c.accounts = append(c.accounts, account)
		c.owners[account], c.dollars[account] = owner, currency == "USD"
	}
	begun := time.Now()
	chaos, stop := c.begin(t.Context(), w)
	var clients sync.WaitGroup
	for range raceClients {
		clients.Go(func() { c.run(t.Context()) })
	}
	clients.Wait()
	stop()
	took := time.Since(begun)
	c.drain()
	// Requests that got no answer are sent again, and some of the others.
	rand.Shuffle(len(c.past), func(i, j int) { c.past[i], c.past[j] = c.past[j], c.past[i] })
	for i, w := range c.past {
		if i < raceReplays || !c.heard(w.key) {
			if _, err := c.ask(t.Context(), c.calm, w); err != nil && !refused(err) {
				t.Errorf("sending a request again at the end: %v", err)
			}
		}
	}
	c.mustBeRight()
	t.Logf("%d keys in %s: %v; %d backends killed, %d connections cut, %d keys ended by the watchdog, %d transfers entered meanwhile, %d snapshots (the longest %s)",
		total, took.Round(time.Millisecond), c.count, chaos.killed, chaos.cut, chaos.orphans, chaos.written, chaos.looked, chaos.longest.Round(time.Millisecond))
	// Without these events the test proves nothing.
	for _, word := range []string{
		"INSUFFICIENT_BALANCE", "ALREADY_REVERSED", transfer.TimedOut, transfer.RolledBack, transfer.InProgress,
		"error: idempotency_key_reused", "error: currencies_differ",
	} {
		if c.count[word] == 0 {
			t.Errorf("no caller was answered %s", word)
		}
	}
	if c.count[transfer.Succeeded] < total/10 || chaos.killed < 10 || chaos.cut < 10 || chaos.orphans < 10 || chaos.written < total/50 || chaos.looked < 10 {
		t.Error("too little happened")
	}
	if opened := c.one(`SELECT count(*) FROM core.account WHERE owner_user_id LIKE 'u_new_%'`); opened != fmt.Sprint(c.openings.Load()) {
		t.Errorf("%s accounts were opened for %d keys", opened, c.openings.Load())
	}
}

func refused(err error) bool {
	return slices.Contains([]string{"idempotency_key_reused", "currencies_differ"}, kind(err))
}
