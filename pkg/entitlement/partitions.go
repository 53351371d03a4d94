package entitlement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

const (
	// monthsAhead is the number of future audit partitions, so that a cleanup may fail
	// for a quarter; after that, rows go to the DEFAULT partition.
	monthsAhead = 3
	// lockTimeout bounds how long a change of partitions waits for a lock, while grants
	// wait behind it: twice at most, because dropping a partition also locks the table.
	lockTimeout = "1s"
	// excludeBefore is the time before a month begins until which it may still be
	// excluded from the DEFAULT partition.
	excludeBefore = 24 * time.Hour
	// SQLSTATEs of a missing constraint, of a row of the month that has just arrived in
	// DEFAULT, and of a lock timeout.
	undefinedObject  = "42704"
	checkViolation   = "23514"
	lockNotAvailable = "55P03"
)

// EnsureAudit creates the audit partitions of this and the next three months, and drops
// those that are older than r.AuditMonths.
//
// No grant waits for more than two lock timeouts, however many rows the DEFAULT partition
// has and wherever this process stops: each change is one statement, which ends by
// itself, and none of them scans rows under a lock. So rows are not moved: a month with
// rows in DEFAULT keeps all of its rows there until they are too old.
func (s *Store) EnsureAudit(ctx context.Context, r Retention) (Counts, error) {
	var counts Counts
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return counts, err
	}
	existing, err := s.audit(ctx)
	if err != nil {
		return counts, err
	}
	var failures []error
	month := monthOf(now)
	for ahead := range monthsAhead + 1 {
		m := month.AddDate(0, ahead, 0)
		if existing.partitions[partitionName(m)] {
			continue
		}
		made, err := s.makePartition(ctx, m, now)
		if made {
			delete(existing.excluded, partitionName(m))
			counts.PartitionsMade++
		} else {
			counts.PartitionsSkipped++
		}
		if postgres.Code(err) == lockNotAvailable {
			return counts, err // grants have waited for long enough
		}
		failures = append(failures, err) // continue with the other months and with dropping
	}
	// Constraints of a killed cleanup: they would block all grants once their month
	// begins.
	for name := range existing.excluded {
		failures = append(failures, s.include(ctx, name))
	}
	oldest := partitionName(month.AddDate(0, -r.AuditMonths, 0))
	for name := range existing.partitions {
		// Names sort by month.
		if name >= oldest {
			continue
		}
		if err := s.alone(ctx, `DROP TABLE IF EXISTS entitlement.`+name); err != nil {
			return counts, errors.Join(append(failures, err)...)
		}
		counts.PartitionsDropped++
	}
	return counts, errors.Join(failures...)
}

const partitionPrefix = "entitlement_audit_y"

func monthOf(t time.Time) time.Time {
	return time.Date(t.UTC().Year(), t.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
}

func partitionName(month time.Time) string { return partitionPrefix + month.Format("2006m01") }

// auditTables returns the months with a partition, and those that a constraint with their
// partition's name excludes from DEFAULT.
type auditTables struct{ partitions, excluded map[string]bool }

func (s *Store) audit(ctx context.Context) (auditTables, error) {
	found := auditTables{map[string]bool{}, map[string]bool{}}
	rows, err := s.pool.Query(ctx, `
		SELECT c.relname, false FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'entitlement.entitlement_audit'::regclass
		UNION ALL
		SELECT conname, true FROM pg_constraint
		WHERE conrelid = 'entitlement.entitlement_audit_default'::regclass AND contype = 'c'`)
	if err != nil {
		return found, postgres.Wrap("audit partitions", err)
	}
	var name string
	var excluded bool
	_, err = pgx.ForEachRow(rows, []any{&name, &excluded}, func() error {
		switch {
		case !strings.HasPrefix(name, partitionPrefix):
		case excluded:
			found.excluded[name] = true
		default:
			found.partitions[name] = true
		}
		return nil
	})
	return found, postgres.Wrap("audit partitions", err)
}

// makePartition creates a month's partition, unless DEFAULT has rows of the month, or may
// get some before it is done. Postgres needs proof that there are none: if DEFAULT has
// other rows, the proof is a constraint that is validated while grants continue.
func (s *Store) makePartition(ctx context.Context, month, now time.Time) (made bool, err error) {
	name, next := partitionName(month), month.AddDate(0, 1, 0)
	var empty, none bool
	if err := s.pool.QueryRow(ctx, `
		SELECT NOT EXISTS (SELECT FROM entitlement.entitlement_audit_default),
		       NOT EXISTS (SELECT FROM entitlement.entitlement_audit_default WHERE occurred_at >= $1 AND occurred_at < $2)`,
		month, next).Scan(&empty, &none); err != nil {
		return false, postgres.Wrap("audit partitions", err)
	}
	from, to := month.Format(time.RFC3339), next.Format(time.RFC3339)
	if !empty {
		if !none || now.Add(excludeBefore).After(month) {
			return false, nil
		}
		defer func() {
			if err != nil { // or the next cleanup does it
				_ = s.include(context.WithoutCancel(ctx), name)
			}
		}()
		if err := s.alone(ctx, fmt.Sprintf(`
			IF to_regclass('entitlement.%[1]s') IS NULL AND NOT EXISTS (
				SELECT FROM pg_constraint WHERE conrelid = 'entitlement.entitlement_audit_default'::regclass AND conname = '%[1]s') THEN
				ALTER TABLE entitlement.entitlement_audit_default
				ADD CONSTRAINT %[1]s CHECK (occurred_at < '%[2]s' OR occurred_at >= '%[3]s') NOT VALID;
			END IF`, name, from, to)); err != nil {
			return false, err
		}
		// Validation reads all of DEFAULT, under a lock that no grant waits for. If the
		// constraint is gone, another cleanup was faster.
		_, err := s.pool.Exec(ctx, `ALTER TABLE entitlement.entitlement_audit_default VALIDATE CONSTRAINT `+name)
		if err != nil && postgres.Code(err) != undefinedObject {
			return false, postgres.Wrap("audit partitions", err)
		}
	}
	// Without the constraint, attaching would scan a DEFAULT with rows while grants wait.
	if err := s.alone(ctx, fmt.Sprintf(`
		IF to_regclass('entitlement.%[1]s') IS NULL AND (
			NOT EXISTS (SELECT FROM entitlement.entitlement_audit_default)
			OR EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'entitlement.entitlement_audit_default'::regclass AND conname = '%[1]s' AND convalidated)
		) THEN
			CREATE TABLE entitlement.%[1]s (LIKE entitlement.entitlement_audit INCLUDING ALL);
			ALTER TABLE entitlement.entitlement_audit ATTACH PARTITION entitlement.%[1]s FOR VALUES FROM ('%[2]s') TO ('%[3]s');
			ALTER TABLE entitlement.entitlement_audit_default DROP CONSTRAINT IF EXISTS %[1]s;
		END IF`, name, from, to)); err != nil && postgres.Code(err) != checkViolation {
		return false, err
	}
	err = s.pool.QueryRow(ctx, `SELECT to_regclass('entitlement.' || $1) IS NOT NULL`, name).Scan(&made)
	return made, postgres.Wrap("audit partitions", err)
}

// include allows rows of a month in DEFAULT again.
func (s *Store) include(ctx context.Context, name string) error {
	return s.alone(ctx, `ALTER TABLE entitlement.entitlement_audit_default DROP CONSTRAINT IF EXISTS `+name)
}

// alone runs PL/pgSQL statements as one transaction that waits for locks only briefly and
// excludes other cleanups. To Postgres it is one statement, so a process that freezes or
// dies leaves no lock behind.
func (s *Store) alone(ctx context.Context, statements string) error {
	_, err := s.pool.Exec(ctx, `DO $$ BEGIN
		PERFORM set_config('lock_timeout', '`+lockTimeout+`', true);
		PERFORM pg_advisory_xact_lock(hashtextextended('entitlement.entitlement_audit', 0));
		`+statements+`;
	END $$`)
	return postgres.Wrap("audit partitions", err)
}
