package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Role is a login for functions: what it may do is in roles/NAME.sql. Each domain has
// one of its own; there is another for what only cleanup does.
type Role struct {
	Name   string // of the role in roles/, which need not be that of the login
	Domain string
}

// Roles are all of them, in the order of granting: the owner of the audit comes last.
var Roles = []Role{
	{"account", "account"},
	{"entitlement", "entitlement"},
	{"notification", "notification"},
	{"transfer", "transfer"},
	{"entitlement_cleanup", "entitlement"},
}

// limits are what is set on a role, where it holds behind a pooler, too.
func limits(statement, idle time.Duration) map[string]string {
	return map[string]string{
		"statement_timeout":                   fmt.Sprint(statement.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(idle.Milliseconds()),
		"timezone":                            "UTC",
		"client_connection_check_interval":    fmt.Sprint(postgres.ClientCheck.Milliseconds()),
	}
}

// Grant gives the login in loginURL the rights of role, and no others, in the database at
// url, after Up. It creates a missing login, for which url's login needs CREATEROLE, and
// sets an existing login's password where it differs from loginURL's. Call it again after
// each Up, which may bring new tables. loginURL may lead through a pooler; nothing
// connects to it. If it has the login of url, nothing changes: that is the owner, who may
// do everything.
func Grant(ctx context.Context, url, loginURL string, role Role) error {
	err := grant(ctx, url, loginURL, role, limits(postgres.StatementTimeout, postgres.IdleTimeout))
	if err != nil {
		return fmt.Errorf("grant %s its rights: %w", role.Name, err)
	}
	return nil
}

func grant(ctx context.Context, url, loginURL string, role Role, limits map[string]string) error {
	login, err := pgx.ParseConfig(loginURL)
	if err != nil {
		return errors.New("its database URL cannot be read") // not the error: it has the URL
	}
	rights, err := Files.ReadFile("roles/" + role.Name + ".sql")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if login.User == conn.Config().User {
		return nil
	}
	name := pgx.Identifier{login.User}.Sanitize()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Other calls of Grant wait as long as this one does.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
			return err
		}
		// When several migrate at once, one at a time grants: Postgres refuses concurrent
		// ones.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('miniserver roles', 0))`); err != nil {
			return err
		}
		if err := create(ctx, tx, login, name, limits); err != nil {
			return err
		}
		// Start from no rights, so that it has what the file says and no more.
		database := pgx.Identifier{conn.Config().Database}.Sanitize()
		_, err := tx.Exec(ctx, fmt.Sprintf(`GRANT CONNECT ON DATABASE %s TO %s; %s; %s`,
			database, name, revokeAll(name, role), strings.ReplaceAll(string(rights), "{role}", name)))
		return err
	})
	if err != nil {
		return err
	}
	return setPassword(ctx, conn, login, name)
}

// revokeAll takes every right away in the schemas of a domain.
func revokeAll(name string, role Role) string {
	schemas := role.Domain
	if role.Domain == "transfer" {
		schemas = "core, integration"
	}
	return fmt.Sprintf(`REVOKE ALL ON ALL TABLES IN SCHEMA %[1]s FROM %[2]s; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %[1]s FROM %[2]s; REVOKE ALL ON SCHEMA %[1]s FROM %[2]s`, schemas, name)
}

// create makes the login where there is none, and sets its limits where they differ.
func create(ctx context.Context, tx pgx.Tx, login *pgx.ConnConfig, name string, limits map[string]string) error {
	var exists, member bool
	var set []string
	err := tx.QueryRow(ctx, `
		SELECT oid IS NOT NULL, coalesce(pg_has_role(current_user, oid, 'MEMBER'), false),
		       coalesce((SELECT setconfig FROM pg_db_role_setting WHERE setrole = oid AND setdatabase = 0), '{}')
		FROM (SELECT to_regrole($1)::oid AS oid) r`, name).Scan(&exists, &member, &set)
	if err != nil {
		return err
	}
	if !exists {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD %s`, name, literal(login.Password))); err != nil {
			return err
		}
	}
	if !member {
		// So that url's login keeps what it hands over to this one.
		if _, err := tx.Exec(ctx, fmt.Sprintf(`GRANT %s TO CURRENT_USER`, name)); err != nil {
			return err
		}
	}
	for setting, value := range limits {
		if strings.Contains("\n"+strings.Join(set, "\n")+"\n", "\n"+setting+"="+value+"\n") {
			continue
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`ALTER ROLE %s SET %s = %s`, name, setting, literal(value))); err != nil {
			return err
		}
	}
	return nil
}

// setPassword gives the login the password of its URL, unless that works already: a new
// verifier of the same password would shut out a pooler that knows the old one.
func setPassword(ctx context.Context, conn *pgx.Conn, login *pgx.ConnConfig, name string) error {
	direct := conn.Config()
	direct.User, direct.Password = login.User, login.Password
	own, err := pgx.ConnectConfig(ctx, direct)
	if err == nil {
		return own.Close(ctx)
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Code, "28") { // invalid authorization
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf(`ALTER ROLE %s LOGIN PASSWORD %s`, name, literal(login.Password)))
	return err
}

// literal returns text as an SQL string.
func literal(text string) string {
	return ` E'` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + `'`
}
