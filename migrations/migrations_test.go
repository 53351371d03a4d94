package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// empty returns the URL of a database without any schema of ours.
func empty(t testing.TB) string {
	t.Helper()
	admin := kit.Pool(t)
	name := "empty_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
	})
	u, err := url.Parse(admin.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func tables(t testing.TB, pool *pgxpool.Pool, domain string) (n int) {
	t.Helper()
	schemas := []string{domain}
	if domain == "transfer" {
		schemas = []string{"core", "integration"}
	}
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = ANY($1)`, schemas).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Several processes start at once, and each migrates.
func TestUpAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	at := empty(t)
	var group sync.WaitGroup
	for _, domain := range migrations.Domains {
		for range 2 {
			group.Go(func() {
				if err := migrations.Up(t.Context(), at, domain); err != nil {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	pool := kit.Connect(t, at)
	for _, domain := range migrations.Domains {
		if n := tables(t, pool, domain); n == 0 {
			t.Errorf("%s has no tables", domain)
		}
		if err := migrations.Up(t.Context(), at, domain); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

// A domain may live in a database of its own.
func TestOneDomainAlone(t *testing.T) {
	t.Parallel()
	for _, domain := range migrations.Domains {
		at := empty(t)
		if err := migrations.Up(t.Context(), at, domain); err != nil {
			t.Fatal(err)
		}
		pool := kit.Connect(t, at)
		for _, other := range migrations.Domains {
			if n := tables(t, pool, other); (n > 0) != (other == domain) {
				t.Errorf("%s alone made %d tables of %s", domain, n, other)
			}
		}
	}
}

// Every migration can be undone, and applied again.
func TestDown(t *testing.T) {
	t.Parallel()
	at := empty(t)
	pool := kit.Connect(t, at)
	for _, domain := range migrations.Domains {
		if err := migrations.Up(t.Context(), at, domain); err != nil {
			t.Fatal(err)
		}
		down(t, at, domain)
		if n := tables(t, pool, domain); n != 0 {
			t.Errorf("%d tables of %s are left", n, domain)
		}
		if err := migrations.Up(t.Context(), at, domain); err != nil {
			t.Errorf("up again: %v", err)
		}
	}
}

// A new database has the audit partitions of this month and the next three from the
// start; one that has rows in DEFAULT keeps them there, and gets its partitions from
// cleanup.
func TestAuditPartitions(t *testing.T) {
	t.Parallel()
	const partitions = `SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'entitlement.entitlement_audit'::regclass`
	for name, test := range map[string]struct{ before, want string }{
		"new":             {`SELECT`, `SELECT 'entitlement_audit_default ' || string_agg('entitlement_audit_y' || to_char(now() AT TIME ZONE 'UTC' + make_interval(months => n), 'YYYY"m"MM'), ' ' ORDER BY n) FROM generate_series(0, 3) n`},
		"rows in DEFAULT": {`INSERT INTO entitlement.entitlement_audit VALUES (gen_random_uuid(), now(), 'u', 'i', 'grant', 'ACTIVE', 1, 'r', 'p', 'c', 'k', gen_random_uuid())`, `SELECT 'entitlement_audit_default'`},
	} {
		at := empty(t)
		pool := kit.Connect(t, at)
		if _, err := provider(t, at, "entitlement").UpTo(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, test.before)
		if err := migrations.Up(t.Context(), at, "entitlement"); err != nil {
			t.Fatalf("%s database: %v", name, err)
		}
		var got, want string
		if err := pool.QueryRow(t.Context(), `SELECT (`+partitions+`), (`+test.want+`)`).Scan(&got, &want); err != nil || got != want {
			t.Errorf("%s: partitions %s, %v; want %s", name, got, err, want)
		}
	}
}

func down(t testing.TB, at, domain string) {
	t.Helper()
	if _, err := provider(t, at, domain).DownTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// provider applies a domain's migrations, step by step.
func provider(t testing.TB, at, domain string) *goose.Provider {
	t.Helper()
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	scripts, err := fs.Sub(migrations.Files, domain)
	if err != nil {
		t.Fatal(err)
	}
	store, err := database.NewStore(goose.DialectPostgres, "migrations_"+domain)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider("", db, scripts, goose.WithStore(store))
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// A bug cannot write nonsense: the schema ties a status to its times and tokens.
func TestConstraints(t *testing.T) {
	t.Parallel()
	pool := kit.Pool(t)
	leased := func(table, id, columns, values, inflight, done string) {
		insert := func(extra, extraValues string) error {
			_, err := pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s (%s, %s, %s) VALUES (gen_random_uuid(), %s, %s)`, table, id, columns, extra, values, extraValues))
			return err
		}
		const token = `gen_random_uuid()`
		for name, row := range map[string][2]string{
			"PENDING with a claim token": {"claim_token, lease_until", token + ", now()"},
			"PENDING with only a token":  {"claim_token", token},
			"PENDING with a lease":       {"lease_until", "now()"},
			"PENDING and finished":       {"finished_at", "now()"},
			"in flight without a token":  {"status", "'" + inflight + "'"},
			"in flight without a lease":  {"status, claim_token", "'" + inflight + "', " + token},
			"in flight and finished":     {"status, claim_token, lease_until, finished_at", "'" + inflight + "', " + token + ", now(), now()"},
			"done without a time":        {"status", "'" + done + "'"},
			"done with a claim token":    {"status, finished_at, claim_token, lease_until", "'" + done + "', now(), " + token + ", now()"},
			"FAILED without a time":      {"status", "'FAILED'"},
			"FAILED with a lease":        {"status, finished_at, lease_until", "'FAILED', now(), now()"},
			"an unknown status":          {"status", "'LOST'"},
			"an empty status":            {"status", "''"},
			"no status":                  {"status", "NULL"},
			"attempts below zero":        {"attempt_count", "-1"},
			"never due":                  {"next_retry_at", "NULL"},
		} {
			err := insert(row[0], row[1])
			if !postgres.BadData(err) {
				t.Errorf("%s: %s: %v, want it refused as bad data", table, name, err)
			}
		}
		for name, row := range map[string][2]string{
			"PENDING":   {"status", "'PENDING'"},
			"in flight": {"status, claim_token, lease_until", "'" + inflight + "', " + token + ", now()"},
			"done":      {"status, finished_at", "'" + done + "', now()"},
			"FAILED":    {"status, finished_at", "'FAILED', now()"},
		} {
			if err := insert(row[0], row[1]); err != nil {
				t.Errorf("%s: %s: %v, want it accepted", table, name, err)
			}
		}
	}
	leased("entitlement.outbox_events", "event_id", "aggregate_key, event_type, payload, occurred_at", "'k', 't', '{}', now()", "IN_FLIGHT", "PUBLISHED")
	leased("notification.notifications", "notification_id", "event_id, user_id, event_type, payload, occurred_at", "gen_random_uuid(), 'u', 't', '{}', now()", "PROCESSING", "SENT")

	const (
		user     = `WITH u AS (INSERT INTO account.users (user_id) VALUES (gen_random_uuid()) RETURNING user_id) `
		identity = user + `INSERT INTO account.identities (issuer, subject, user_id) SELECT `
		role     = user + `INSERT INTO account.user_roles (user_id, role) SELECT user_id, `
	)
	exec(t, pool, identity+`repeat('é', 512), repeat('é', 255), user_id FROM u`)
	exec(t, pool, role+`repeat('é', 64) FROM u`)
	for name, statement := range map[string]string{
		"version 0":            `INSERT INTO entitlement.entitlements VALUES ('u', 'i', 'ACTIVE', 0, now())`,
		"an unknown status":    `INSERT INTO entitlement.entitlements VALUES ('u', 'i', 'PENDING', 1, now())`,
		"nobody's":             `INSERT INTO entitlement.entitlements VALUES ('', 'i', 'ACTIVE', 1, now())`,
		"a user of 129":        `INSERT INTO entitlement.entitlements VALUES (repeat('u', 129), 'i', 'ACTIVE', 1, now())`,
		"a short hash":         `INSERT INTO entitlement.idempotency_keys VALUES ('c', 'grant', 'k', 'x', 200, '{}', '1', now(), now())`,
		"an unknown operation": `INSERT INTO entitlement.entitlement_audit VALUES (gen_random_uuid(), now(), 'u', 'i', 'lend', 'ACTIVE', 1, 'r', 'p', 'c', 'k', gen_random_uuid())`,
		"two per recipient": `INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at)
			SELECT gen_random_uuid(), '0190a5a4-0000-7000-8000-000000000001', 'u', 't', '{}', now() FROM generate_series(1, 2)`,
		"an entry of no transfer": `INSERT INTO core.ledger (transfer_id, account_id, side, amount) VALUES (gen_random_uuid(), 1, 'DEBIT', 1)`,
		"a letter of nothing":     `INSERT INTO notification.notification_dlq (error) VALUES ('e')`,
		"a letter of both":        `INSERT INTO notification.notification_dlq (notification_id, raw_message, error) VALUES (gen_random_uuid(), 'x', 'e')`,
		"two letters of one": `INSERT INTO notification.notification_dlq (notification_id, error)
			SELECT '0190a5a4-0000-7000-8000-000000000001', 'e' FROM generate_series(1, 2)`,
		"an identity without an issuer": identity + `'', 's', user_id FROM u`,
		"an issuer of 513":              identity + `repeat('i', 513), 's', user_id FROM u`,
		"an identity without a subject": identity + `'i', '', user_id FROM u`,
		"a subject of 256":              identity + `'i', repeat('s', 256), user_id FROM u`,
		"an identity of nobody":         identity + `'i', 's', gen_random_uuid() FROM u`,
		"an identity twice":             identity + `'i', 's', user_id FROM u, generate_series(1, 2)`,
		"a role without a name":         role + `'' FROM u`,
		"a role of 65":                  role + `repeat('r', 65) FROM u`,
		"a role twice":                  role + `'r' FROM u, generate_series(1, 2)`,
		"a role of nobody":              `INSERT INTO account.user_roles VALUES (gen_random_uuid(), 'r')`,
	} {
		if _, err := pool.Exec(t.Context(), statement); !postgres.BadData(err) {
			t.Errorf("%s: %v, want it refused as bad data", name, err)
		}
	}
}
