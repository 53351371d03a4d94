package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/migrations"
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
		if err := migrateOne(ctx, s, domain); err != nil {
			return err
		}
		fmt.Fprintln(out, "up to date:", domain)
	}
	return nil
}

func migrateOne(ctx context.Context, s settings.Settings, domain string) error {
	url := cmp.Or(s.MigrationDatabaseURL, s.Database(domain))
	if url == "" {
		return fmt.Errorf("set DATABASE_URL to the database of %s", domain)
	}
	if err := migrations.Up(ctx, url, domain); err != nil || s.MigrationDatabaseURL == "" {
		return err
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
