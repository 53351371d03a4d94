package entitlement_test

import (
	"context"
	"crypto/sha256"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// fixture is a store on a database of the test's own.
type fixture struct {
	t     testing.TB
	ctx   context.Context
	pool  *pgxpool.Pool
	store *entitlement.Store
}

func setup(t testing.TB) *fixture {
	t.Helper()
	return setupOn(t, kit.Pool(t))
}

func setupOn(t testing.TB, pool *pgxpool.Pool) *fixture {
	t.Helper()
	return &fixture{t: t, ctx: t.Context(), pool: pool, store: entitlement.NewStore(pool, 24*time.Hour)}
}

// write returns a request with the given key; two with one key are the same request.
func write(key string) entitlement.Write {
	hash := sha256.Sum256([]byte(key))
	return entitlement.Write{Key: idempotency.Key{Caller: "purchase-service", Value: key, Hash: hash[:]}}
}

var item = entitlement.Change{UserID: "u_1", StockKeepingUnit: "item1", Reason: "purchase", PurchaseID: "p_1"}

func (f *fixture) grant(key string) idempotency.Response {
	f.t.Helper()
	response, err := f.store.Grant(f.ctx, item, write(key))
	if err != nil {
		f.t.Fatal(err)
	}
	return response
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.ctx, sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

func query[T any](f *fixture, sql string, args ...any) T {
	f.t.Helper()
	var v T
	if err := f.pool.QueryRow(f.ctx, sql, args...).Scan(&v); err != nil {
		f.t.Fatal(err)
	}
	return v
}
