package entitlement_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Postgres is killed, three times, while 64 callers' grants share commits: after each
// restart every answered grant is there, with its key, and the others take effect once when
// their callers ask again. With synchronous_commit=off some are lost, which shows that this
// test can fail.
func TestAnsweredGrantsSurviveACrash(t *testing.T) {
	t.Parallel()
	f := newCrash(t)
	for range 3 {
		answered, cut := f.round()
		if lost := len(answered) - f.found(answered); len(answered) == 0 || lost > 0 {
			t.Fatalf("%d of %d answered grants are lost", lost, len(answered))
		}
		if len(cut) < 2 {
			t.Errorf("the kill cut %d grants short, so no batch", len(cut))
		}
		for _, key := range cut {
			kit.Must(t, f.grant(key))
		}
		if found := f.found(cut); found != len(cut) {
			t.Errorf("%d grants asked for again have %d effects", len(cut), found)
		}
	}
	f.exec(`ALTER DATABASE miniserver SET synchronous_commit = off`)
	lostSome := false
	for range 5 {
		if answered, _ := f.round(); f.found(answered) < len(answered) {
			lostSome = true
			break
		}
	}
	if !lostSome {
		t.Error("no grant was lost with synchronous_commit=off, so this test shows nothing")
	}
}

// crash is a durable Postgres of this test's own, which the test kills.
type crash struct {
	t      *testing.T
	server *kit.Postgres
	pool   *pgxpool.Pool
	store  *entitlement.Store
	rounds int
}

func newCrash(t *testing.T) *crash {
	t.Helper()
	f := &crash{t: t, server: kit.OwnPostgres(t, true)}
	kit.Must(t, migrations.Up(t.Context(), f.server.URL(), "entitlement"))
	f.connect()
	t.Cleanup(func() { f.pool.Close() })
	return f
}

func (f *crash) connect() {
	f.t.Helper()
	var err error
	f.pool, err = pgxpool.New(context.Background(), f.server.URL())
	kit.Must(f.t, err)
	f.store = entitlement.NewStore(f.pool, time.Hour)
}

func (f *crash) exec(sql string) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql); err != nil {
		f.t.Fatal(err)
	}
	f.pool.Reset()
}

func (f *crash) grant(key string) error {
	hash := sha256.Sum256([]byte(key))
	_, err := f.store.Grant(context.Background(), entitlement.Change{UserID: "u_" + key, StockKeepingUnit: "item1", Reason: "purchase", PurchaseID: "p"},
		entitlement.Write{Key: idempotency.Key{Caller: "crash", Value: key, Hash: hash[:]}})
	return err
}

// round grants for many callers, kills the server in the middle, and starts it again. It
// returns the keys of the grants that were answered, and of those that the kill cut short.
func (f *crash) round() (answered, cut []string) {
	f.t.Helper()
	f.rounds++
	var mutex sync.Mutex
	var callers sync.WaitGroup
	enough := make(chan struct{})
	var once sync.Once
	for caller := range 64 {
		callers.Go(func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("%d-%d-%d", f.rounds, caller, n)
				err := f.grant(key)
				mutex.Lock()
				if err != nil { // the server is gone
					cut = append(cut, key)
					mutex.Unlock()
					return
				}
				answered = append(answered, key)
				if len(answered) >= 400 {
					once.Do(func() { close(enough) })
				}
				mutex.Unlock()
			}
		})
	}
	<-enough
	kit.Must(f.t, f.server.Kill())
	callers.Wait()
	f.pool.Close()
	// Stop ends what is left of the server; it may fail, as the server is gone.
	_ = f.server.Stop()
	f.server.Start()
	f.connect()
	return answered, cut
}

// found counts the effects of grants: each has an item, a key and an event.
func (f *crash) found(keys []string) (found int) {
	f.t.Helper()
	kit.Must(f.t, f.pool.QueryRow(f.t.Context(), `
		SELECT count(*) FROM unnest($1::text[]) AS k(key)
		JOIN entitlement.entitlements e ON e.user_id = 'u_' || k.key
		JOIN entitlement.idempotency_keys i ON i.caller = 'crash' AND i.operation = 'grant' AND i.idem_key = k.key
		JOIN entitlement.outbox_events o ON o.aggregate_key = 'u_' || k.key || '/item1'`, keys).Scan(&found))
	return found
}
