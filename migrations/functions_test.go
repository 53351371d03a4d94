package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// versions are the names of a function's versions in the database, as SQL lists them.
const versions = `SELECT coalesce(string_agg(proname, ' ' ORDER BY proname), '') FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
	WHERE nspname || '.' || proname ~ ('^' || $1 || '_[0-9a-f]{8}$')`

func text(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (out string) {
	t.Helper()
	kit.Must(t, pool.QueryRow(t.Context(), sql, args...).Scan(&out))
	return out
}

// Each function in the database is what its file says, and has no other version.
func TestFunctionsAreTheirFiles(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	for _, f := range transfer.Functions() {
		has := text(t, pool, `SELECT pg_get_functiondef($1::regproc)`, f.Called())
		exec(t, pool, strings.Replace(f.SQL, f.Called()+"(", f.Name+"_again(", 1))
		again := text(t, pool, `SELECT pg_get_functiondef($1::regproc)`, f.Name+"_again")
		if want := strings.Replace(again, f.Name+"_again(", f.Called()+"(", 1); has != want {
			t.Errorf("%s is\n%s\nand its file says\n%s", f.Called(), has, want)
		}
		if got := text(t, pool, versions, f.Name); "core."+got != f.Called() && "integration."+got != f.Called() {
			t.Errorf("the versions of %s are %s", f.Name, got)
		}
	}
}

// A superseded version stays for the instances that call it, and for a rollback; after a
// month it is dropped.
func TestSupersededFunctions(t *testing.T) {
	t.Parallel()
	at := kit.Database(t)
	pool := kit.Connect(t, at)
	f := transfer.Functions()[0]
	const old = "integration.take_key_0000000a"
	up := func() {
		t.Helper()
		kit.Must(t, migrations.Up(t.Context(), at, "transfer"))
	}
	both := "take_key_0000000a take_key_" + f.Version
	want := func(when, names string, superseded bool) {
		t.Helper()
		if got := text(t, pool, versions, f.Name); got != names {
			t.Errorf("%s there are %s, want %s", when, got, names)
		}
		note := text(t, pool, `SELECT coalesce(obj_description(to_regproc($1), 'pg_proc'), '')`, old)
		if strings.HasPrefix(note, "superseded 2") != superseded {
			t.Errorf("%s the old one's note is %q", when, note)
		}
	}

	exec(t, pool, `CREATE FUNCTION `+old+`() RETURNS int LANGUAGE sql AS 'SELECT 1'`)
	up()
	want("when a new one has come,", both, true)
	up()
	want("a moment later,", both, true)
	exec(t, pool, fmt.Sprintf(`COMMENT ON FUNCTION %s IS 'superseded %s'`, old, text(t, pool, `SELECT (now() - interval '29 days')::text`)))
	up()
	want("for a month", both, true)
	exec(t, pool, fmt.Sprintf(`COMMENT ON FUNCTION %s IS 'superseded %s'`, old, text(t, pool, `SELECT (now() - interval '31 days')::text`)))
	up()
	want("after a month", "take_key_"+f.Version, false)

	// The release after this one is rolled back.
	exec(t, pool, `COMMENT ON FUNCTION `+f.Called()+` IS 'superseded 2001-01-01T00:00:00Z'`)
	up()
	if note := text(t, pool, `SELECT coalesce(obj_description(to_regproc($1), 'pg_proc'), '')`, f.Called()); note != "" {
		t.Errorf("the function of this release has the note %q, want none", note)
	}
}

// Only the domain's role may call the domain's functions.
func TestOnlyTheDomainCallsItsFunctions(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	for _, f := range transfer.Functions() {
		for _, role := range migrations.Roles {
			may := text(t, pool, `SELECT has_function_privilege($1, $2::regproc::oid, 'EXECUTE')::text`, "miniserver_"+role.Name, f.Called())
			if (may == "true") != (role.Name == "transfer") {
				t.Errorf("%s may call %s: %s", role.Name, f.Called(), may)
			}
		}
	}
}
