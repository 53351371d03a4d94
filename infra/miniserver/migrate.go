package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// migrate brings the databases up to date. Run it before new functions start, with a
// direct connection: MIGRATION_DATABASE_URL, or else each domain's own URL. With
// MIGRATION_DATABASE_URL it then gives the roles of the domains' URLs their rights.
// Arguments are the domains to migrate, where they are in several databases; without
// arguments it migrates all.
func migrate(ctx context.Context, domains []string, out io.Writer) error {
	s, err := settings.Load()
	if err != nil {
		return err
	}
	if len(domains) == 0 {
		domains = migrations.Domains
	}
	for _, domain := range domains {
		if !slices.Contains(migrations.Domains, domain) {
			return fmt.Errorf("there is no domain %q; they are %s", domain, strings.Join(migrations.Domains, ", "))
		}
		if err := migrateOne(ctx, s, domain, out); err != nil {
			return err
		}
		fmt.Fprintln(out, "up to date:", domain)
	}
	return nil
}

func migrateOne(ctx context.Context, s settings.Settings, domain string, out io.Writer) error {
	url, source := s.MigrationDatabaseURL, "MIGRATION_DATABASE_URL"
	if url == "" {
		url, source = s.Database(domain), strings.ToUpper(domain)+"_DATABASE_URL or DATABASE_URL"
	}
	if url == "" {
		return fmt.Errorf("set DATABASE_URL to the database of %s", domain)
	}
	url = postgres.Writing(url)
	if err := await(ctx, url, patience, out); err != nil {
		return fmt.Errorf("%w\n(the database is that of %s)", err, source)
	}
	if err := migrations.Up(ctx, url, domain); err != nil {
		return fmt.Errorf("%w\n(the database is that of %s; what was brought up to date stays, and this command goes on from there)", err, source)
	}
	if s.MigrationDatabaseURL == "" {
		return nil
	}
	if s.CleanupDatabaseURL == "" && domain == "entitlement" && !sameUser(url, s.Database(domain)) {
		// Its rights would replace those of the login that the functions use.
		return errors.New("set ENTITLEMENT_CLEANUP_DATABASE_URL, for a login of cleanup's own: it owns the audit, which no other function may")
	}
	for _, role := range migrations.Roles {
		login := s.Database(role.Name)
		if role.Domain != domain || login == "" {
			continue
		}
		if !sameDatabase(url, login) {
			return fmt.Errorf("MIGRATION_DATABASE_URL is another database than that of %s; run this command for each database, with its domains as arguments", domain)
		}
		if err := migrations.Grant(ctx, url, login, role); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long the database may be unreachable: where both start at once, its pod
// or the network's rules may come later than this command.
const patience = 30 * time.Second

const startingUp = "57P03" // PostgreSQL's cannot_connect_now

// await returns when the database can be connected to, or cannot for another reason than
// that nobody answers, or for longer than within.
func await(ctx context.Context, url string, within time.Duration, out io.Writer) error {
	if _, err := pgx.ParseConfig(url); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for said := false; ; said = true {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		var answer *pgconn.PgError
		if errors.As(err, &answer) && answer.Code != startingUp {
			return err
		}
		if !said {
			fmt.Fprintf(out, "waiting for the database, for %s at most: %v\n", within, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// sameUser reports whether two URLs name one login.
func sameUser(one, other string) bool {
	a, err := pgx.ParseConfig(one)
	b, err2 := pgx.ParseConfig(other)
	return err != nil || err2 != nil || a.User == b.User // another check refuses a URL that cannot be read
}

// sameDatabase reports whether two URLs name one database. A pooler has other hosts
// than the server, and usually the same names.
func sameDatabase(one, other string) bool {
	a, err := pgx.ParseConfig(one)
	b, err2 := pgx.ParseConfig(other)
	return err != nil || err2 != nil || a.Database == b.Database // a URL that cannot be read fails later
}
