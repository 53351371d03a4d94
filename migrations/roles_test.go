package migrations_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

const denied = "42501"

// schemas of the domains.
var schemas = map[string][]string{
	"account": {"account"}, "entitlement": {"entitlement"}, "notification": {"notification"}, "transfer": {"core", "integration"},
}

// A domain's role reads its own tables and no other's, whatever the statement.
func TestRoleReachesItsOwnDomainOnly(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	owner := kit.Connect(t, database)
	for _, role := range migrations.Roles {
		pool := kit.Connect(t, kit.As(database, role.Name))
		for domain, names := range schemas {
			var tables []string
			err := owner.QueryRow(t.Context(), `SELECT array_agg(c.oid::regclass::text) FROM pg_class c
				WHERE relnamespace::regnamespace::text = ANY($1) AND relkind IN ('r', 'p') AND NOT relispartition`, names).Scan(&tables)
			if err != nil || len(tables) < 2 {
				t.Fatalf("tables of %s: %v, %v", domain, tables, err)
			}
			for _, table := range tables {
				_, err := pool.Exec(t.Context(), `SELECT FROM `+table+` LIMIT 1`)
				if own := domain == role.Domain; own != (err == nil) || !own && postgres.Code(err) != denied {
					t.Errorf("%s reads %s: %v", role.Name, table, err)
				}
			}
			for _, do := range []string{`CREATE TABLE %s.mine (n int)`, `DROP TABLE %s CASCADE`, `ALTER TABLE %s ADD n int`, `TRUNCATE %s`} {
				on := tables[0]
				if strings.HasPrefix(do, "CREATE") {
					on = names[0]
					if role.Name == "entitlement_cleanup" && domain == "entitlement" {
						continue // it makes partitions
					}
				}
				if strings.Contains(on, "audit") && role.Name == "entitlement_cleanup" {
					on = "entitlement.entitlements"
				}
				if _, err := pool.Exec(t.Context(), fmt.Sprintf(do, on)); postgres.Code(err) != denied {
					t.Errorf("%s: %s: %v, want that it is denied", role.Name, fmt.Sprintf(do, on), err)
				}
			}
		}
		if _, err := pool.Exec(t.Context(), `SELECT FROM public.migrations_account`); postgres.Code(err) != denied {
			t.Errorf("%s reads which migrations there are: %v", role.Name, err)
		}
	}
}

// Records of the past are written once: not even their domain changes them. Only
// cleanup's role makes and drops their partitions.
func TestRecordsAreNotChanged(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	for role, statements := range map[string][]string{
		"entitlement": {
			`UPDATE entitlement.entitlement_audit SET reason = ''`, `DELETE FROM entitlement.entitlement_audit`,
			`DELETE FROM entitlement.entitlement_audit_default`, `DROP TABLE entitlement.entitlement_audit_default`,
		},
		"transfer": {
			`UPDATE core.transfer SET amount = 1`, `DELETE FROM core.transfer`, `UPDATE core.ledger SET amount = 1`, `DELETE FROM core.ledger`,
		},
		"entitlement_cleanup": {`UPDATE entitlement.entitlements SET status = 'ACTIVE'`, `INSERT INTO entitlement.outbox_events DEFAULT VALUES`},
	} {
		pool := kit.Connect(t, kit.As(database, role))
		for _, statement := range statements {
			if _, err := pool.Exec(t.Context(), statement); postgres.Code(err) != denied {
				t.Errorf("%s: %s: %v, want that it is denied", role, statement, err)
			}
		}
	}
	cleanup := kit.Connect(t, kit.As(database, "entitlement_cleanup"))
	exec(t, cleanup, `CREATE TABLE entitlement.entitlement_audit_y2001m01 PARTITION OF entitlement.entitlement_audit FOR VALUES FROM ('2001-01-01Z') TO ('2001-02-01Z')`)
	store := entitlement.NewStore(cleanup, time.Hour)
	if counts, err := store.EnsureAudit(t.Context(), entitlement.Retention{AuditMonths: 1}); err != nil || counts.PartitionsDropped != 1 {
		t.Errorf("cleanup's role makes and drops partitions: %+v, %v", counts, err)
	}
	if _, err := store.Cleanup(t.Context(), entitlement.Retention{AuditMonths: 1}); err != nil {
		t.Error(err)
	}
	// The next migration meets partitions that it did not make.
	for _, role := range migrations.Roles {
		if err := migrations.Grant(t.Context(), database, kit.As(database, role.Name), role); err != nil {
			t.Error(err)
		}
	}
	if _, err := store.EnsureAudit(t.Context(), entitlement.Retention{AuditMonths: 1}); err != nil {
		t.Error(err)
	}
}

// login returns the URL of a login that does not exist; it is dropped with the test.
func login(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := "role_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	u.User = url.UserPassword(name, `it's "\`)
	owner := kit.Connect(t, database)
	t.Cleanup(func() {
		_, _ = owner.Exec(context.Background(), `DROP OWNED BY `+name)
		if _, err := owner.Exec(context.Background(), `DROP ROLE IF EXISTS `+name); err != nil {
			t.Error(err)
		}
	})
	return u.String()
}

// The server itself ends a role's long statement and its idle transaction: behind a
// pooler nothing else does.
func TestServerEndsWhatARoleDoes(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	role := migrations.Roles[0]
	as := login(t, database)
	if err := migrations.GrantWithin(t.Context(), database, as, role, 200*time.Millisecond, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	pool, err := postgres.Open(as, 1, "exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, `SELECT pg_sleep(20)`); postgres.Code(err) != "57014" {
		t.Errorf("a statement that does not end: %v, want 57014 of the server", err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	owner := kit.Connect(t, database)
	kit.Eventually(t, "the server ends a transaction that does nothing", func() bool {
		var open int
		err := owner.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state = 'idle in transaction'`,
			pool.Config().ConnConfig.User).Scan(&open)
		return err != nil || open == 0
	})
	if _, err := tx.Exec(ctx, `SELECT 1`); err == nil {
		t.Error("an idle transaction was not ended")
	}
	_ = tx.Rollback(ctx)
	for _, role := range migrations.Roles {
		pool := kit.Connect(t, kit.As(database, role.Name))
		for setting, want := range map[string]string{"statement_timeout": "10s", "idle_in_transaction_session_timeout": "5s", "timezone": "UTC", "client_connection_check_interval": "250ms"} {
			var got string
			if err := pool.QueryRow(ctx, `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
				t.Errorf("%s of %s is %q (%v), want %q", setting, role.Name, got, err, want)
			}
		}
	}
}

// Granting again changes nothing but what is new, and a login whose password changed gets
// the new one.
func TestGrantAgain(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	as, role := login(t, database), migrations.Roles[0]
	for range 2 {
		if err := migrations.Grant(t.Context(), database, as, role); err != nil {
			t.Fatal(err)
		}
	}
	owner := kit.Connect(t, database)
	u, err := url.Parse(as)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, owner, `CREATE TABLE account.later (n int)`)
	exec(t, owner, `GRANT USAGE ON SCHEMA account TO `+u.User.Username())
	exec(t, owner, `GRANT TRUNCATE ON account.users TO `+u.User.Username())
	u.User = url.UserPassword(u.User.Username(), "another")
	if err := migrations.Grant(t.Context(), database, u.String(), role); err != nil {
		t.Fatal(err)
	}
	pool := kit.Connect(t, u.String())
	exec(t, pool, `INSERT INTO account.later VALUES (1)`)
	if _, err := pool.Exec(t.Context(), `TRUNCATE account.users CASCADE`); postgres.Code(err) != denied {
		t.Errorf("a right that the file does not have stays: %v", err)
	}
	// The owner neither gets nor loses rights.
	if err := migrations.Grant(t.Context(), database, database, role); err != nil {
		t.Error(err)
	}
	exec(t, owner, `TRUNCATE account.later`)
}

// The owner need not be a superuser: some providers make nobody one.
func TestGrantByAnOwner(t *testing.T) {
	t.Parallel()
	database := empty(t)
	owner := login(t, database)
	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	admin := kit.Connect(t, database)
	exec(t, admin, fmt.Sprintf(`CREATE ROLE %s LOGIN CREATEROLE PASSWORD E'it\'s "\\'`, u.User.Username()))
	exec(t, admin, fmt.Sprintf(`ALTER DATABASE %s OWNER TO %s`, strings.TrimPrefix(u.Path, "/"), u.User.Username()))
	exec(t, admin, `GRANT CREATE ON SCHEMA public TO `+u.User.Username())
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), fmt.Sprintf(`REASSIGN OWNED BY %s TO CURRENT_USER`, u.User.Username()))
	})
	logins := map[string]string{}
	for _, role := range migrations.Roles {
		logins[role.Name] = login(t, database)
	}
	for range 2 { // the second time it works on what it gave away
		for _, domain := range migrations.Domains {
			if err := migrations.Up(t.Context(), owner, domain); err != nil {
				t.Fatal(err)
			}
		}
		for _, role := range migrations.Roles {
			if err := migrations.Grant(t.Context(), owner, logins[role.Name], role); err != nil {
				t.Fatal(err)
			}
		}
	}
	store := entitlement.NewStore(kit.Connect(t, logins["entitlement_cleanup"]), time.Hour)
	if _, err := store.EnsureAudit(t.Context(), entitlement.Retention{AuditMonths: 1}); err != nil {
		t.Error(err)
	}
	exec(t, kit.Connect(t, logins["entitlement"]), `SELECT FROM entitlement.entitlement_audit`)
	exec(t, kit.Connect(t, owner), `ALTER TABLE entitlement.entitlement_audit ADD COLUMN later text`)
}
