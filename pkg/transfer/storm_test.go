package transfer_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	stormSenders = 64
	stormEach    = 10
)

// storm lets many senders transfer at once in two processes, each between a pair that pick
// chooses. It returns the most TX1 that Postgres ran at once, and how many deadlocks
// Postgres counted: the store retries those, so callers do not see them.
func (a *arena) storm(pick func(sender int) (owner string, from, to int64)) (most int, deadlocks string) {
	a.t.Helper()
	other := transfer.NewStore(a.victims)
	a.SetStep(kit.Patience)
	other.SetStep(kit.Patience)
	var senders sync.WaitGroup
	begun := time.Now()
	for n := range stormSenders {
		senders.Go(func() {
			for range stormEach {
				if a.t.Failed() {
					return // each may have waited for as long as a TX1 may take
				}
				owner, from, to := pick(n)
				w := a.wish(owner, from, to, fmt.Sprintf("%d.%04d", rand.IntN(40), 1+rand.IntN(9999)))
				answer, err := a.ask(a.t.Context(), []*transfer.Store{a.Store, other}[rand.IntN(2)], w)
				if err != nil || answer.Status != transfer.Succeeded && word(answer) != "INSUFFICIENT_BALANCE" {
					a.t.Errorf("a transfer was answered %s, %v; want SUCCEEDED or INSUFFICIENT_BALANCE", answer.Body, err)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { senders.Wait(); close(over) }()
	for running := true; running; {
		select {
		case <-over:
			running = false
		default:
			n, _ := strconv.Atoi(a.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND application_name = $1 AND state = 'active' AND strpos(query, $2) > 0`, victim, tx1))
			most = max(most, n)
		}
	}
	a.t.Logf("%d transfers in %s, at most %d at once: %v", stormSenders*stormEach, time.Since(begun).Round(time.Millisecond), most, a.count)
	// A backend reports its counts when it ends, at the latest.
	a.victims.Close()
	kit.Eventually(a.t, "the backends ended", func() bool {
		return a.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, victim) == "0"
	})
	return most, a.one(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}

// All senders transfer between two accounts in both directions: they wait for each other
// and never deadlock.
func TestStormBothWays(t *testing.T) {
	t.Parallel()
	a := newArena(t, 24, "cache_statement", nil)
	accounts := [2]int64{a.open("u_a", "1000"), a.open("u_b", "1000")}
	_, deadlocks := a.storm(func(n int) (string, int64, int64) {
		return []string{"u_a", "u_b"}[n%2], accounts[n%2], accounts[1-n%2]
	})
	if deadlocks != "0" {
		t.Errorf("%s deadlocks, want none", deadlocks)
	}
	a.mustBeRight()
}

// All senders transfer with one account: each process runs one batch of its transfers at a
// time, as others would only hold connections while they wait for the account.
func TestStormOnOneAccount(t *testing.T) {
	t.Parallel()
	a := newArena(t, 24, "cache_statement", nil)
	hot := a.open("u_hot", "1000")
	var others []int64
	for n := range stormSenders {
		others = append(others, a.open(fmt.Sprint("u_", n), "100"))
	}
	most, deadlocks := a.storm(func(n int) (string, int64, int64) {
		if rand.IntN(2) == 0 {
			return "u_hot", hot, others[n]
		}
		return fmt.Sprint("u_", n), others[n], hot
	})
	if most > 2 || most < 1 {
		t.Errorf("%d batches of one account at once, want one for each of the two processes", most)
	}
	if deadlocks != "0" {
		t.Errorf("%s deadlocks", deadlocks)
	}
	a.mustBeRight()
}

// The storm notices when accounts are locked in another order.
func TestStormNoticesDeadlocks(t *testing.T) {
	t.Parallel()
	a := newArena(t, 24, "cache_statement", nil)
	// Now and then with a moment between the two locks, so that another comes in between on
	// any machine, and retries still end well.
	a.plant("IF true = ANY (mine) THEN", `IF true = ANY (mine) THEN
		PERFORM set_config('deadlock_timeout', '10ms', true);
		PERFORM FROM core.account WHERE account_id = p_from[1] FOR NO KEY UPDATE;
		IF random() < 0.2 THEN PERFORM pg_sleep(0.01); END IF;`)
	accounts := [2]int64{a.open("u_a", "1000"), a.open("u_b", "1000")}
	_, deadlocks := a.storm(func(n int) (string, int64, int64) {
		return []string{"u_a", "u_b"}[n%2], accounts[n%2], accounts[1-n%2]
	})
	if deadlocks == "0" {
		t.Error("no deadlock was counted")
	}
	a.mustBeRight()
}
