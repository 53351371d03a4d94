package account_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The store works in every mode of the protocol; behind a transaction pooler statements
// run in other modes than the default.
func TestEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			database := kit.Database(t)
			pool, err := postgres.Open(database, 4, mode, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			f := setupOn(t, database, pool)
			f.register("ann")
			ann := f.register("ann", "a", "b")
			linked, err := f.store.Link(f.ctx, ann.UserID, another, "ann")
			if err != nil || len(linked.Identities) != 2 {
				t.Errorf("linked %+v, %v; want 2 identities", linked, err)
			}
			if got, err := f.store.Get(f.ctx, issuer, "ann"); err != nil || !reflect.DeepEqual(got, linked) || len(got.Roles) != 2 {
				t.Errorf("read %+v, %v; want %+v with 2 roles", got, err, linked)
			}
			refusesOdd(f)
		})
	}
}

// Any text within the limits is a subject; subjects are compared byte by byte.
func TestOddSubjects(t *testing.T) {
	t.Parallel()
	f := setup(t)
	users := map[string]string{}
	for _, subject := range []string{
		"ann", "Ann", "ann ", " ann", "a%", "a_", "'; DROP TABLE account.users; --", `\`, "{}", "NULL", "\n", "\u200b", "\ufffd",
		"é", "e\u0301", "日本", "👩‍👩‍👧", "\U0010ffff", strings.Repeat("s", 255), strings.Repeat("語", 255), strings.Repeat("\U0001f600", 255),
	} {
		a, err := f.store.Register(f.ctx, issuer, subject, nil)
		if err != nil || a.Identities[0].Subject != subject {
			t.Errorf("%.50q: %+v, %v", subject, a, err)
			continue
		}
		if other, ok := users[a.UserID]; ok {
			t.Errorf("%q and %q are one user", subject, other)
		}
		users[a.UserID] = subject
	}
	if _, err := f.store.Register(f.ctx, strings.Repeat("i", 512), strings.Repeat("s", 255), nil); err != nil {
		t.Error(err)
	}
	f.whole(len(users)+1, len(users)+1)
	refusesOdd(f)
}

// refusesOdd checks that every method refuses an invalid identity with ErrIdentityInvalid,
// and leaves nothing behind.
func refusesOdd(f *fixture) {
	f.t.Helper()
	ann := f.register("ann")
	before := query[int](f, `SELECT (SELECT count(*) FROM account.users) + (SELECT count(*) FROM account.identities)`)
	for name, i := range map[string]account.Identity{
		"no subject":          {Issuer: issuer},
		"no issuer":           {Subject: "s"},
		"a subject of 256":    {Issuer: issuer, Subject: strings.Repeat("é", 256)},
		"an issuer of 513":    {Issuer: strings.Repeat("i", 513), Subject: "s"},
		"NUL":                 {Issuer: issuer, Subject: "\x00"},
		"NUL within":          {Issuer: issuer, Subject: "ann\x00"},
		"NUL in the issuer":   {Issuer: issuer + "\x00", Subject: "ann"},
		"broken UTF-8":        {Issuer: issuer, Subject: "ann\xff"},
		"half a character":    {Issuer: issuer, Subject: "é"[:1]},
		"a surrogate":         {Issuer: issuer, Subject: "\xed\xa0\x80"},
		"more than the index": {Issuer: emoji(512), Subject: emoji(255)},
	} {
		_, registered := f.store.Register(f.ctx, i.Issuer, i.Subject, []string{"player"})
		_, linked := f.store.Link(f.ctx, ann.UserID, i.Issuer, i.Subject)
		_, got := f.store.Get(f.ctx, i.Issuer, i.Subject)
		if name == "more than the index" && errors.Is(got, account.ErrNotFound) {
			got = account.ErrIdentityInvalid // a read may also answer that it is not stored
		}
		for _, err := range []error{registered, linked, got} {
			if !errors.Is(err, account.ErrIdentityInvalid) || fault.Of(err) != fault.Invalid {
				f.t.Errorf("%s: %v, want ErrIdentityInvalid", name, err)
			}
		}
	}
	if after := query[int](f, `SELECT (SELECT count(*) FROM account.users) + (SELECT count(*) FROM account.identities)`); after != before {
		f.t.Errorf("%d rows became %d, want no change", before, after)
	}
}

// emoji returns text of n characters of 4 bytes that does not compress.
func emoji(n int) string {
	text := make([]rune, n)
	for i := range text {
		text[i] = 0x10000 + rune(rand.IntN(0x10_0000))
	}
	return string(text)
}

// While the database is away every call fails with Unavailable, and nothing is half done.
func TestAway(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("ann")
	closed := kit.Connect(t, f.database)
	closed.Close()
	nowhere := account.NewStore(kit.Connect(t, "postgres://u:p@127.0.0.1:1/none"))
	late, cancel := context.WithTimeout(f.ctx, 1)
	defer cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		store *account.Store
		read  error // what a read may return instead
	}{
		"closed pool": {f.ctx, account.NewStore(closed), nil},
		"no server":   {f.ctx, nowhere, nil},
		"out of time": {late, f.store, nil},
		"failed over": {f.ctx, f.readOnly(), account.ErrNotFound},
	} {
		_, registered := test.store.Register(test.ctx, issuer, "bob", nil)
		_, replaced := test.store.Register(test.ctx, issuer, "ann", []string{"player"})
		_, linked := test.store.Link(test.ctx, ann.UserID, another, "ann")
		_, got := test.store.Get(test.ctx, issuer, "bob")
		for _, err := range []error{registered, replaced, linked, got} {
			if fault.Of(err) != fault.Unavailable && (test.read == nil || !errors.Is(err, got) || !errors.Is(err, test.read)) {
				t.Errorf("%s: %v, want Unavailable", name, err)
			}
		}
	}
	f.whole(1, 1)
	if n := query[int](f, `SELECT count(*) FROM account.user_roles`); n != 0 {
		t.Errorf("%d roles, want none", n)
	}
}

// Another transaction locks the user's row for too long: a request that waits is answered
// Unavailable, and succeeds when it is sent again, whether or not the first one was done.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("ann")
	tx, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(f.ctx, `SELECT FROM account.users FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := f.store.Link(short, ann.UserID, another, "ann"); fault.Of(err) != fault.Unavailable {
		t.Error(err)
	}
	if err := tx.Rollback(f.ctx); err != nil {
		t.Fatal(err)
	}
	if a, err := f.store.Link(f.ctx, ann.UserID, another, "ann"); err != nil || len(a.Identities) != 2 {
		t.Errorf("the request sent again answers %+v, %v; want 2 identities", a, err)
	}
}
