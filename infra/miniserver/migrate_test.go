package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

// One login cannot be that of the functions and of cleanup: the rights of the one would
// replace those of the other, and no grant could be written.
func TestCleanupNeedsALoginOfItsOwn(t *testing.T) {
	t.Parallel()
	database := kit.Database(t)
	at := strings.Index(database, "@")
	s := settings.Settings{MigrationDatabaseURL: database, DatabaseURL: "postgres://functions:secret" + database[at:]}
	err := migrateOne(t.Context(), s, "entitlement", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ENTITLEMENT_CLEANUP_DATABASE_URL") {
		t.Errorf("%v, want an error that names the setting", err)
	}
}

// The database is not there yet, and comes: migrate waits for it. One that does not come, or
// that refuses, is an error, the latter at once.
func TestMigrateWaits(t *testing.T) {
	t.Parallel()
	link, database := kit.Through(t, kit.Database(t))
	link.Cut()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- await(t.Context(), database, time.Minute, write) }()
	said := make([]byte, 1000)
	n, err := read.Read(said)
	if err != nil || !strings.HasPrefix(string(said[:n]), "waiting for the database") {
		t.Fatalf("it says %q, %v", said[:n], err)
	}
	link.Mend()
	kit.Must(t, <-ended)
	link.Cut()
	if err := await(t.Context(), database, time.Second, io.Discard); err == nil {
		t.Error("a database that is away is no error")
	}
	link.Mend()
	var bad *pgconn.ParseConfigError
	if err := await(t.Context(), "postgres://:x", time.Minute, io.Discard); !errors.As(err, &bad) {
		t.Errorf("no URL is %v", err)
	}
	var refusal *pgconn.PgError
	err = await(t.Context(), strings.Replace(database, "@", "wrong@", 1), time.Minute, io.Discard)
	if !errors.As(err, &refusal) {
		t.Errorf("a wrong password is %v", err)
	}
}
