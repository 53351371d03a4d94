// Package migrations holds the schema of every domain and brings a database up
// to date. Migrations are expand-then-contract: the functions before and after
// one run side by side. They need a direct connection, not a transaction pooler.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx" that goose needs
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// Files holds the migrations, a folder for each domain, and the rights of each role, in
// roles.
//
//go:embed account/*.sql entitlement/*.sql notification/*.sql transfer/*.sql roles/*.sql
var Files embed.FS

// Domains lists the schemas, each of which may live in a database of its own.
var Domains = []string{"account", "entitlement", "notification", "transfer"}

// Up applies a domain's missing migrations to the database at url, and defines the
// domain's functions there. Several processes may call it at once: one migrates, the
// others wait.
func Up(ctx context.Context, url, domain string) (err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", domain, err)
	}
	defer db.Close()
	scripts, err := fs.Sub(Files, domain)
	if err != nil {
		return err
	}
	store, err := database.NewStore(goose.DialectPostgres, "migrations_"+domain)
	if err != nil {
		return err
	}
	// Try for the lock every second, for at most five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider("", db, scripts, goose.WithStore(store), goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", domain, err)
	}
	if _, err = provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", domain, err)
	}
	if domain == "transfer" {
		if err := define(ctx, db, transfer.Functions()); err != nil {
			return fmt.Errorf("define the functions of %s: %w", domain, err)
		}
	}
	return nil
}
