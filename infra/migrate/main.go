// Command migrate brings the databases up to date. Run it before new functions
// start, with a direct connection: MIGRATION_DATABASE_URL, or else each domain's
// own URL.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := settings.Load()
	if err != nil {
		return err
	}
	if s.MigrationDatabaseURL != "" && s.AccountDatabaseURL+s.EntitlementDatabaseURL+s.NotificationDatabaseURL+s.TransferDatabaseURL != "" {
		return errors.New("MIGRATION_DATABASE_URL is one database, and the domains have databases of their own; leave it out, and set theirs to direct connections for this command")
	}
	for _, domain := range migrations.Domains {
		url := s.MigrationDatabaseURL
		if url == "" {
			url = s.Database(domain)
		}
		if url == "" {
			return fmt.Errorf("set DATABASE_URL to the database of %s", domain)
		}
		if err := migrations.Up(ctx, url, domain); err != nil {
			return err
		}
		fmt.Println("up to date:", domain)
	}
	return nil
}
