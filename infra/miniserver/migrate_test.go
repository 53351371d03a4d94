package main

import (
	"strings"
	"testing"

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
	err := migrateOne(t.Context(), s, "entitlement")
	if err == nil || !strings.Contains(err.Error(), "ENTITLEMENT_CLEANUP_DATABASE_URL") {
		t.Errorf("%v, want an error that names the setting", err)
	}
}
