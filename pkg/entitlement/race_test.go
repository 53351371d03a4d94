package entitlement_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Grants and revokes of one item race: the state is that of the highest version, and
// answers, audit and events agree and have every version once.
func TestGrantAndRevokeRace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const writers, each = 10, 15
	answers := map[int64]string{}
	var mutex sync.Mutex
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for n := range each {
				act := f.store.Grant
				if (w+n)%2 == 0 {
					act = f.store.Revoke
				}
				response, err := act(f.ctx, item, write(fmt.Sprint(w, "-", n)))
				if err != nil {
					t.Error(err)
					continue
				}
				var changed entitlement.Changed
				if err := json.Unmarshal(response.Body, &changed); err != nil {
					t.Error(err)
				}
				mutex.Lock()
				if answers[changed.Version] != "" {
					t.Errorf("version %d was answered twice", changed.Version)
				}
				answers[changed.Version] = string(changed.Status)
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	const total = writers * each
	state, err := f.store.Get(f.ctx, item.UserID, item.StockKeepingUnit)
	if err != nil || state.Version != total || string(state.Status) != answers[total] {
		t.Fatalf("%+v, %v; want version %d, %s", state, err, total, answers[total])
	}
	rows, err := f.pool.Query(f.ctx, `SELECT a.version, a.status, e.event_type, (e.payload->>'version')::bigint, a.occurred_at = e.occurred_at
		FROM entitlement.entitlement_audit a JOIN entitlement.outbox_events e USING (event_id) ORDER BY a.version`)
	if err != nil {
		t.Fatal(err)
	}
	var next, version, inEvent int64
	var status, typ string
	var sameTime bool
	if _, err := pgx.ForEachRow(rows, []any{&version, &status, &typ, &inEvent, &sameTime}, func() error {
		next++
		if version != next || inEvent != version || status != answers[version] || (typ == "EntitlementGranted") != (status == "ACTIVE") || !sameTime {
			t.Errorf("row %d: audit version %d %s, event version %d %s, answer %s", next, version, status, inEvent, typ, answers[version])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if next != total {
		t.Errorf("%d versions are audited, want %d", next, total)
	}
	// occurred_at grows with the version, although clocks are read before locks.
	if n := query[int](f, `SELECT count(*) FROM (SELECT occurred_at < lag(occurred_at) OVER (ORDER BY version) AS back FROM entitlement.entitlement_audit) x WHERE back`); n != 0 {
		t.Errorf("%d versions are older than the one before", n)
	}
}

// Of many writers that send the same If-Match at once, exactly one succeeds.
func TestIfMatchRace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.grant("first")
	var won int
	var mutex sync.Mutex
	var group sync.WaitGroup
	for w := range 12 {
		group.Go(func() {
			request := write(fmt.Sprint("w", w))
			request.IfMatch = 1
			_, err := f.store.Revoke(f.ctx, item, request)
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, entitlement.ErrVersion) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if version := query[int](f, `SELECT version FROM entitlement.entitlements`); won != 1 || version != 2 {
		t.Errorf("%d writers succeeded, want 1; the version is %d, want 2", won, version)
	}
	if n := query[int](f, `SELECT count(*) FROM entitlement.outbox_events`); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

// Many requests with one key at once have one effect and one answer, even if an earlier
// use of the key has expired.
func TestOneKeyAtOnceInTheStore(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for round := range 2 {
		f.exec(`UPDATE entitlement.idempotency_keys SET expires_at = now()`)
		bodies := map[string]int{}
		var mutex sync.Mutex
		var group sync.WaitGroup
		for range 24 {
			group.Go(func() {
				process := entitlement.NewStore(f.pool, 24*time.Hour) // one process lets one key's requests run in turn
				response, err := process.Grant(f.ctx, item, write("same"))
				if err != nil && !errors.Is(err, idempotency.ErrInProgress) {
					t.Error(err)
				}
				mutex.Lock()
				bodies[string(response.Body)]++
				mutex.Unlock()
			})
		}
		group.Wait()
		delete(bodies, "")
		if version := query[int](f, `SELECT version FROM entitlement.entitlements`); version != round+1 || len(bodies) != 1 {
			t.Errorf("round %d: version %d, want %d; answers %v, want one", round, version, round+1, bodies)
		}
	}
}

// A refund that overtakes its purchase wins, whichever is committed first, in whichever
// batch of whichever process.
func TestRefundAndPurchaseRace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*entitlement.Store{f.store, entitlement.NewStore(f.pool, 24*time.Hour)}
	const items = 200
	var group sync.WaitGroup
	for n := range items {
		change := item
		change.StockKeepingUnit = fmt.Sprint("item", n)
		purchase, refund := write(fmt.Sprint("p", n)), write(fmt.Sprint("r", n))
		purchase.Purchase, refund.Purchase = true, true
		group.Go(func() {
			if _, err := stores[n%2].Grant(f.ctx, change, purchase); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := stores[1-n%2].Revoke(f.ctx, change, refund); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := query[int](f, `SELECT count(*) FROM entitlement.entitlements WHERE status = 'REVOKED' AND version = 2`); n != items {
		t.Errorf("%d of %d items ended REVOKED, want all", n, items)
	}
}

// The store works in every mode of the protocol; behind a transaction pooler statements
// run in other modes than the default.
func TestEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pool, err := postgres.Open(kit.Database(t), 4, mode, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			f := setupOn(t, pool)
			first, second := f.grant("k"), f.grant("k")
			if string(first.Body) != string(second.Body) || first.Replayed || !second.Replayed {
				t.Errorf("the same grant was answered\n%s\nand\n%s, want a replay", first.Body, second.Body)
			}
			purchase := write("p")
			purchase.Purchase = true
			if _, err := f.store.Revoke(f.ctx, item, purchase); err != nil {
				t.Error(err)
			}
			for i, err := range f.crowd(40, func(i int, _ *entitlement.Change, w *entitlement.Write) { w.Purchase = i%2 == 0 }) {
				if err != nil {
					t.Errorf("grant %d of many: %v", i, err)
				}
			}
			if _, err := f.store.EnsureAudit(f.ctx, entitlement.Retention{AuditMonths: 13}); err != nil {
				t.Error(err)
			}
			if _, err := f.store.Cleanup(f.ctx, entitlement.Retention{}); err != nil {
				t.Error(err)
			}
			if list, _, err := f.store.List(f.ctx, "u_1", "", 10); err != nil || len(list) != 1 {
				t.Errorf("the entitlements are %v, %v; want 1", list, err)
			}
			if list, _, err := f.store.History(f.ctx, "u_1", "item1", "", 10); err != nil || len(list) != 2 {
				t.Errorf("the history is %v, %v; want 2 changes", list, err)
			}
		})
	}
}
