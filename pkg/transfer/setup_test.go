package transfer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// called returns the full name of a database function, with its version.
func called(name string) string {
	i := slices.IndexFunc(transfer.Functions(), func(f transfer.Function) bool { return f.Name == name })
	return transfer.Functions()[i].Called()
}

type setup struct {
	*transfer.Store
	pool *pgxpool.Pool
	t    *testing.T
}

func start(t *testing.T) setup {
	t.Helper()
	t.Parallel()
	pool := kit.Pool(t)
	return setup{transfer.NewStore(pool), pool, t}
}

// amount parses an amount. Like key, it runs on other goroutines, too, which must not end
// the test: on an error it fails the test and continues.
func amount(t testing.TB, text string) transfer.Amount {
	t.Helper()
	a, err := transfer.ParseAmount(text)
	if err != nil {
		t.Error(err)
	}
	return a
}

// open opens an account in euros and returns its id.
func (s setup) open(owner, balance string) int64 {
	s.t.Helper()
	return s.openIn("EUR", owner, balance)
}

func (s setup) openIn(currency, owner, balance string) int64 {
	s.t.Helper()
	o := transfer.Open{Client: "ops", Key: uuid.NewString(), Owner: owner, Currency: currency, Retention: time.Hour}
	if balance != "0" {
		first := amount(s.t, balance)
		o.Balance = &first
	}
	response, err := s.OpenAccount(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	var opened transfer.Opened
	if err := json.Unmarshal(response.Body, &opened); err != nil {
		s.t.Fatalf("%s: %v", response.Body, err)
	}
	return opened.AccountID
}

func (s setup) key(client string) string {
	s.t.Helper()
	key, err := s.IssueKey(s.t.Context(), client)
	if err != nil {
		s.t.Error(err)
	}
	return key.Key
}

func (s setup) request(owner string, from, to int64, text string) transfer.Request {
	return transfer.Request{Client: owner, Key: s.key(owner), Owner: owner, From: from, To: to, Amount: amount(s.t, text)}
}

func (s setup) balance(account int64) string {
	s.t.Helper()
	a, err := s.Account(s.t.Context(), account)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Balance.String()
}

func (s setup) one(sql string, args ...any) string {
	s.t.Helper()
	var out any
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&out); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(out)
}
