package account_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	issuer  = "https://login.example.com"
	another = "https://id.example.org"
)

// fixture is a store on a database of the test's own.
type fixture struct {
	t        testing.TB
	ctx      context.Context
	database string
	pool     *pgxpool.Pool
	store    *account.Store
}

func setup(t testing.TB) *fixture {
	t.Helper()
	database := kit.Database(t)
	return setupOn(t, database, kit.Connect(t, database+"&pool_max_conns=32"))
}

func setupOn(t testing.TB, database string, pool *pgxpool.Pool) *fixture {
	t.Helper()
	return &fixture{t, t.Context(), database, pool, account.NewStore(pool)}
}

// readOnly returns the same store on connections that refuse every write and row lock.
func (f *fixture) readOnly() *account.Store {
	f.t.Helper()
	return account.NewStore(kit.Connect(f.t, f.database+"&default_transaction_read_only=on"))
}

func (f *fixture) register(subject string, roles ...string) account.Account {
	f.t.Helper()
	a, err := f.store.Register(f.ctx, issuer, subject, roles)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
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

// whole fails the test unless there are so many users and identities, and every user has
// an identity.
func (f *fixture) whole(users, identities int) {
	f.t.Helper()
	if n := query[int](f, `SELECT count(*) FROM account.users`); n != users {
		f.t.Errorf("%d users, want %d", n, users)
	}
	if n := query[int](f, `SELECT count(*) FROM account.identities`); n != identities {
		f.t.Errorf("%d identities, want %d", n, identities)
	}
	if n := query[int](f, `SELECT count(*) FROM account.users u WHERE NOT EXISTS (SELECT FROM account.identities i WHERE i.user_id = u.user_id)`); n != 0 {
		f.t.Errorf("%d users have no identity", n)
	}
}

// atOnce runs do n times at once and waits until all have returned.
func atOnce(n int, do func(i int)) {
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	group.Wait()
}
