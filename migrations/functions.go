package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// supersededFor is how long a version of a function stays after another has replaced it:
// instances of the previous release call it until the last of them has ended, and again
// after a rollback.
const supersededFor = "30 days"

// othersSQL handles the other versions of a function: the first Up that finds one notes
// the time, and the first Up that finds the note old enough drops the version.
const othersSQL = `
SELECT CASE WHEN superseded IS NULL
       THEN format('COMMENT ON FUNCTION %I.%I IS %L', nspname, proname, 'superseded ' || to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
       ELSE format('DROP FUNCTION %I.%I', nspname, proname) END
FROM (SELECT nspname, proname, substring(obj_description(p.oid, 'pg_proc') FROM '^superseded (.+)$')::timestamptz AS superseded
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE nspname || '.' || proname ~ ('^' || $1 || '_[0-9a-f]{8}$') AND nspname || '.' || proname <> $2) other
WHERE superseded IS NULL OR superseded < now() - $3::interval`

// define creates the functions that the database does not have, in one transaction. A
// function is never replaced: its name says which version it is.
func define(ctx context.Context, db *sql.DB, functions []transfer.Function) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// When several migrate at once, one at a time defines; none waits for one that hangs.
	if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '30s'`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('miniserver functions', 0))`); err != nil {
		return err
	}
	for _, f := range functions {
		if err := defineOne(ctx, tx, f); err != nil {
			return fmt.Errorf("%s: %w", f.Called(), err)
		}
	}
	return tx.Commit()
}

func defineOne(ctx context.Context, tx *sql.Tx, f transfer.Function) error {
	var there bool
	if err := tx.QueryRowContext(ctx, `SELECT to_regproc($1) IS NOT NULL`, f.Called()).Scan(&there); err != nil {
		return err
	}
	statements := []string{`COMMENT ON FUNCTION ` + f.Called() + ` IS NULL`} // it may have been superseded before
	if !there {
		// Only the logins that a file in roles names may call it.
		statements = []string{f.SQL, `REVOKE ALL ON FUNCTION ` + f.Called() + ` FROM PUBLIC`}
	}
	rows, err := tx.QueryContext(ctx, othersSQL, f.Name, f.Called(), supersededFor)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			return err
		}
		statements = append(statements, statement)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
