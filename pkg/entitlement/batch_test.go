package entitlement_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

// crowd sends n different grants at once and returns their errors. Most of them share
// batches.
func (f *fixture) crowd(n int, change func(int, *entitlement.Change, *entitlement.Write)) []error {
	f.t.Helper()
	failures := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			c, w := item, write(fmt.Sprint("crowd", i))
			c.UserID = fmt.Sprint("u", i)
			change(i, &c, &w)
			_, failures[i] = f.store.Grant(f.ctx, c, w)
		})
	}
	group.Wait()
	return failures
}

// Grants at once share commits, and each has its row, answer, audit and event.
func TestGrantsShareCommits(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = 200
	for i, err := range f.crowd(n, func(int, *entitlement.Change, *entitlement.Write) {}) {
		if err != nil {
			t.Errorf("grant %d: %v", i, err)
		}
	}
	if commits := query[int](f, `SELECT count(DISTINCT xmin::text) FROM entitlement.entitlements`); commits > n/2 {
		t.Errorf("%d grants at once took %d commits, want them to share some", n, commits)
	}
	if n := query[int](f, `
		SELECT count(*) FROM entitlement.entitlements e
		JOIN entitlement.entitlement_audit a USING (user_id, stock_keeping_unit, version)
		JOIN entitlement.outbox_events o USING (event_id)
		JOIN entitlement.idempotency_keys k USING (caller, idem_key)
		WHERE o.aggregate_key = user_id || '/item1' AND o.payload->>'user_id' = user_id AND response_body::jsonb->>'user_id' = user_id
		  AND 'crowd' || substr(user_id, 2) = idem_key`); n != 200 {
		t.Errorf("%d grants have all of their rows, want 200", n)
	}
}

// A change has the same effect alone and in a batch, whatever came before: change.sql and
// change_one.sql write the same rows.
func TestAloneAndTogether(t *testing.T) {
	t.Parallel()
	const items, rounds = 40, 12
	var written [2]string
	for together := range 2 {
		f := setup(t)
		random := rand.New(rand.NewPCG(7, 7))
		for round := range rounds {
			var group sync.WaitGroup
			for i := range items {
				c, w := item, write(fmt.Sprint(round*random.IntN(2), "-", i))
				c.UserID, c.StockKeepingUnit = fmt.Sprint("u", i%7), fmt.Sprint("item", i)
				w.Purchase, w.IfMatch, c.PurchaseID = random.IntN(2) == 0, int64(max(0, random.IntN(9)-5)), fmt.Sprint("p", random.IntN(3))
				do := f.store.Grant
				if random.IntN(3) == 0 {
					do = f.store.Revoke
				}
				change := func() {
					if _, err := do(f.ctx, c, w); err != nil && !errors.Is(err, entitlement.ErrVersion) && !errors.Is(err, idempotency.ErrReused) {
						t.Error(err)
					}
				}
				if together == 0 {
					change()
				} else {
					group.Go(change)
				}
			}
			group.Wait()
		}
		if n := query[int](f, `SELECT count(*) FROM entitlement.outbox_events WHERE `+kit.OtherTime("event_id", "occurred_at", "occurred_at")); n > 0 {
			t.Errorf("together %d: the ids of %d events are not of the time of their change", together, n)
		}
		changes, commits := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit`), query[int](f, `SELECT count(DISTINCT xmin::text) FROM entitlement.entitlement_audit`)
		if (together == 0) != (commits == changes) {
			t.Errorf("together %d: %d changes took %d commits", together, changes, commits)
		}
		written[together] = query[string](f, `
			SELECT (SELECT string_agg(concat_ws(' ', user_id, stock_keeping_unit, status, version), E'\n' ORDER BY user_id, stock_keeping_unit) FROM entitlement.entitlements)
			|| (SELECT string_agg(concat_ws(' ', a.user_id, a.stock_keeping_unit, operation, a.status, version, reason, purchase_id, caller, idem_key,
					event_type, aggregate_key, payload - 'event_id' - 'occurred_at', a.occurred_at = e.occurred_at, payload->>'event_id' = event_id::text), E'\n' ORDER BY a.stock_keeping_unit, version)
				FROM entitlement.entitlement_audit a JOIN entitlement.outbox_events e USING (event_id))
			|| (SELECT string_agg(concat_ws(' ', caller, operation, idem_key, request_hash, status_code, response_body::jsonb - 'updated_at', etag), E'\n' ORDER BY operation, idem_key) FROM entitlement.idempotency_keys)
			|| (SELECT string_agg(concat_ws(' ', user_id, stock_keeping_unit, purchase_id), E'\n' ORDER BY user_id, stock_keeping_unit, purchase_id) FROM entitlement.refunded_purchases)`)
	}
	if written[0] != written[1] {
		t.Errorf("alone they write\n%s\nand together\n%s", written[0], written[1])
	}
	if n := strings.Count(written[0], "\n"); n < 300 {
		t.Errorf("only %d rows were compared", n)
	}
}

// One write among 63 good ones cannot be stored: it fails alone.
func TestPoisonedWrite(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i, err := range f.crowd(64, func(i int, _ *entitlement.Change, w *entitlement.Write) {
		if i == 40 {
			w.Key.Hash = w.Key.Hash[:31] // the table refuses it
		}
	}) {
		if i == 40 != postgres.BadData(err) || i != 40 && err != nil {
			t.Errorf("grant %d ended with %v", i, err)
		}
	}
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlements`); n != 63 {
		t.Errorf("%d items are granted, want 63", n)
	}
}

// Another process holds the lock of one item for long: the grants of others, even of the
// same batch, do not wait for it.
func TestLockedItem(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.crowd(64, func(int, *entitlement.Change, *entitlement.Write) {})
	tx, err := f.pool.Begin(f.ctx)
	kit.Must(t, err)
	_, err = tx.Exec(f.ctx, `SELECT FROM entitlement.entitlements WHERE user_id = 'u40' FOR UPDATE`)
	kit.Must(t, err)
	var locked sync.WaitGroup
	var others sync.WaitGroup
	for i := range 64 {
		group := &others
		if i == 40 {
			group = &locked
		}
		group.Go(func() {
			c := item
			c.UserID = fmt.Sprint("u", i)
			if _, err := f.store.Grant(f.ctx, c, write(fmt.Sprint("again", i))); err != nil {
				t.Errorf("grant %d: %v", i, err)
			}
		})
	}
	others.Wait()
	if version := query[int](f, `SELECT version FROM entitlement.entitlements WHERE user_id = 'u40'`); version != 1 {
		t.Errorf("the locked item has version %d, want 1 while it is locked", version)
	}
	kit.Must(t, tx.Rollback(f.ctx))
	locked.Wait()
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlements WHERE version = 2`); n != 64 {
		t.Errorf("%d items have version 2, want 64", n)
	}
}

// Two processes change few items with few keys, in every way, and callers hang up: no
// version is skipped or answered twice, and no key has two effects.
func TestBatchesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*entitlement.Store{f.store, entitlement.NewStore(kit.Connect(t, f.pool.Config().ConnString()), 24*time.Hour)}
	var mutex sync.Mutex
	answers := map[string]string{} // by key
	var group sync.WaitGroup
	for client := range 24 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for range 25 {
				n := random.IntN(150)
				c, w := item, write(fmt.Sprint("k", n))
				c.StockKeepingUnit, w.Purchase, w.IfMatch = fmt.Sprint("item", n%9), n%3 == 0, int64(max(0, n%5-2))
				do := stores[random.IntN(2)].Grant
				if n%4 == 0 {
					do = stores[random.IntN(2)].Revoke
				}
				ctx, cancel := f.ctx, context.CancelFunc(func() {})
				if random.IntN(10) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
				}
				response, err := do(ctx, c, w)
				cancel()
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, entitlement.ErrVersion) && !errors.Is(err, idempotency.ErrInProgress) {
						t.Errorf("change %d: %v", n, err)
					}
					continue
				}
				mutex.Lock()
				if before := answers[w.Key.Value]; before != "" && before != string(response.Body) {
					t.Errorf("key %s was answered %s and %s", w.Key.Value, before, response.Body)
				}
				answers[w.Key.Value] = string(response.Body)
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	rows, err := f.pool.Query(f.ctx, `
		SELECT stock_keeping_unit || ' ' || string_agg(version::text, ' ' ORDER BY version), max(version), count(*), count(DISTINCT idem_key)
		FROM entitlement.entitlement_audit GROUP BY stock_keeping_unit`)
	kit.Must(t, err)
	var list string
	var last, changes, keys int
	_, err = pgx.ForEachRow(rows, []any{&list, &last, &changes, &keys}, func() error {
		if last != changes || keys != changes {
			t.Errorf("an item has %d changes by %d keys up to version %d, want as many: %s", changes, keys, last, list)
		}
		return nil
	})
	kit.Must(t, err)
	for key, body := range answers {
		if n := query[int](f, `SELECT count(*) FROM entitlement.entitlement_audit WHERE idem_key = $1 AND version::text = $2`, key, version(body)); n != 1 {
			t.Errorf("key %s was answered %s, and %d changes are that", key, body, n)
		}
	}
}

// version returns the version in an answer's body.
func version(body string) string {
	_, after, _ := strings.Cut(body, `"version":`)
	number, _, _ := strings.Cut(after, ",")
	return number
}
