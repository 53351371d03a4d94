package transfer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// crowd is many callers that send random requests.
type crowd struct {
	*arena
	mutex    sync.Mutex
	accounts []int64
	owners   map[int64]string
	dollars  map[int64]bool // the others are in euros
	past     []wish         // to be sent again
	done     []string       // ids of transfers, to be reversed
	left     atomic.Int64
	openings atomic.Int64
}

func one[T any](c *crowd, from *[]T) (t T, ok bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(*from) == 0 {
		return t, false
	}
	return (*from)[rand.IntN(len(*from))], true
}

// pair returns two accounts, mostly of the same currency.
func (c *crowd) pair() (from, to int64) {
	from, _ = one(c, &c.accounts)
	whatever := rand.IntN(50) == 0
	for to = from; to == from || c.dollars[to] != c.dollars[from] && !whatever; {
		to, _ = one(c, &c.accounts)
	}
	return from, to
}

// someAmount returns an amount that is mostly small, sometimes more than the account has,
// and rarely more than any account has.
func someAmount() string {
	switch n := rand.IntN(100); {
	case n < 85:
		return fmt.Sprintf("%d.%04d", rand.IntN(5), 1+rand.IntN(9999))
	case n < 97:
		return fmt.Sprintf("%d.%d", rand.IntN(300), 1+rand.IntN(9))
	}
	return fmt.Sprintf("%d.0001", 1+rand.Int64N(1e15-1))
}

// run sends requests until none is left to send.
func (c *crowd) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch n := rand.IntN(1000); {
		case n < 100: // an old request again
			if w, ok := one(c, &c.past); ok {
				c.send(ctx, w)
			}
		case n < 140: // an old key for another request
			if w, ok := one(c, &c.past); ok && w.reverses == "" {
				w.amount = amount(c.t, someAmount())
				c.send(ctx, w)
			}
		case n < 142:
			c.openAccount(ctx)
		case c.left.Add(-1) < 0:
			return
		default:
			c.fresh(ctx, n < 230)
		}
	}
}

// fresh sends a new transfer, or the reversal of an old one, perhaps several times at
// once, and again until it is answered or the caller gives up.
func (c *crowd) fresh(ctx context.Context, reversal bool) {
	from, to := c.pair()
	w := wish{client: c.owners[from], owner: c.owners[from], from: from, to: to, amount: amount(c.t, someAmount())}
	if old, ok := one(c, &c.done); ok && reversal {
		w = wish{client: "ops", reverses: old}
	}
	for w.key == "" && ctx.Err() == nil {
		if key, err := c.IssueKey(ctx, w.client); err == nil {
			w.key = key.Key
		} else if !expected(ctx, err) {
			c.t.Errorf("issue a key: %v", err)
			return
		}
	}
	c.mutex.Lock()
	c.past = append(c.past, w)
	c.mutex.Unlock()
	var others sync.WaitGroup
	if rand.IntN(10) == 0 {
		for range 1 + rand.IntN(3) {
			others.Go(func() { c.send(ctx, w) })
		}
	}
	for range 1 + rand.IntN(5) {
		if c.send(ctx, w) {
			break
		}
	}
	others.Wait()
}

// send reports whether the answer is final. Some callers hang up early.
func (c *crowd) send(ctx context.Context, w wish) bool {
	if rand.IntN(40) == 0 {
		var hangUp context.CancelFunc
		ctx, hangUp = context.WithTimeout(ctx, around(2*time.Millisecond))
		defer hangUp()
	}
	answer, err := c.ask(ctx, c.Store, w)
	if err != nil || answer.Status == transfer.InProgress {
		return false
	}
	if answer.Status == transfer.Succeeded && w.reverses == "" {
		c.mutex.Lock()
		c.done = append(c.done, strings.Split(string(answer.Body), `"`)[3])
		c.mutex.Unlock()
	}
	return true
}

// openAccount opens an account with money, and sends the request until two answers came.
func (c *crowd) openAccount(ctx context.Context) {
	balance := amount(c.t, someAmount()[:1]+".5")
	n := c.openings.Add(1)
	o := transfer.Open{Client: "ops", Key: uuid.NewString(), Owner: fmt.Sprint("u_new_", n), Currency: "EUR", Balance: &balance, Retention: time.Hour}
	first := ""
	for answers := 0; answers < 2 && ctx.Err() == nil; {
		response, err := c.OpenAccount(ctx, o)
		if err != nil {
			if !expected(ctx, err) {
				c.t.Errorf("open an account: %v", err)
				return
			}
			continue
		}
		if answers++; first == "" {
			first = string(response.Body)
		} else if string(response.Body) != first {
			c.t.Errorf("opening an account was answered %s, then %s; want the same", first, response.Body)
		}
	}
	var opened transfer.Opened
	if err := json.Unmarshal([]byte(first), &opened); err != nil {
		c.t.Errorf("%s: %v", first, err)
	}
}
