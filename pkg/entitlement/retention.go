package entitlement

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Retention says how long the domain keeps what it no longer needs.
type Retention struct {
	Published   time.Duration // outbox rows, after they were published; FAILED ones stay
	AuditMonths int           // whole months of audit before the current one
}

// Counts says what one cleanup removed and made.
type Counts struct {
	Deleted, PartitionsMade, PartitionsDropped int
	// PartitionsSkipped months have too many rows in the DEFAULT partition to move.
	PartitionsSkipped int
	More              bool // a batch was full
}

const (
	// monthsAhead of audit partitions exist, so that a cleanup that did not run for
	// a quarter stops nothing; after that rows go to the DEFAULT partition.
	monthsAhead = 3
	// maxMoved rows are moved to a new partition while grants wait: well below a second.
	maxMoved = 10_000
	// lockTimeout bounds how long changing partitions may wait, and make others wait.
	lockTimeout = "2s"
)

// Cleanup deletes one batch of each kind that is due. Call it again while More.
func (s *Store) Cleanup(ctx context.Context, r Retention) (counts Counts, err error) {
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return counts, err
	}
	published := now.Add(-r.Published)
	oldestAudit := monthOf(now).AddDate(0, -r.AuditMonths, 0)
	counts.Deleted, counts.More, err = postgres.Sweep(ctx, s.pool,
		postgres.Delete{SQL: `DELETE FROM entitlement.idempotency_keys WHERE (caller, operation, idem_key) IN (
			SELECT caller, operation, idem_key FROM entitlement.idempotency_keys
			WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`},
		// Event ids are UUIDv7, so the primary key finds the oldest rows.
		postgres.Delete{SQL: `DELETE FROM entitlement.outbox_events WHERE event_id IN (
			SELECT event_id FROM entitlement.outbox_events
			WHERE event_id < $2 AND status = 'PUBLISHED' AND published_at <= $3
			ORDER BY event_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{id.Before(published), published}},
		// Rows of months that had no partition when they were written.
		postgres.Delete{SQL: `DELETE FROM entitlement.entitlement_audit_default WHERE (audit_id, occurred_at) IN (
			SELECT audit_id, occurred_at FROM entitlement.entitlement_audit_default
			WHERE occurred_at < $2 LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{oldestAudit}},
	)
	return counts, err
}

// EnsureAudit makes this month's audit partition and those of the next three
// months, and drops the ones that are older than r.AuditMonths.
func (s *Store) EnsureAudit(ctx context.Context, r Retention) (Counts, error) {
	var counts Counts
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return counts, err
	}
	month := monthOf(now)
	existing, err := s.auditPartitions(ctx)
	if err != nil {
		return counts, err
	}
	for ahead := range monthsAhead + 1 {
		first := month.AddDate(0, ahead, 0)
		if existing[partitionName(first)] {
			continue
		}
		made, err := s.makePartition(ctx, first)
		if err != nil {
			return counts, err
		}
		if made {
			counts.PartitionsMade++
		} else {
			counts.PartitionsSkipped++
		}
	}
	oldest := partitionName(month.AddDate(0, -r.AuditMonths, 0))
	for name := range existing {
		// Names sort by month.
		if name >= oldest {
			continue
		}
		if err := s.alone(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS entitlement."+name)
			return err
		}); err != nil {
			return counts, err
		}
		counts.PartitionsDropped++
	}
	return counts, nil
}

const partitionPrefix = "entitlement_audit_y"

func monthOf(t time.Time) time.Time {
	return time.Date(t.UTC().Year(), t.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
}

func partitionName(first time.Time) string { return partitionPrefix + first.Format("2006m01") }

func (s *Store) auditPartitions(ctx context.Context) (map[string]bool, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'entitlement.entitlement_audit'::regclass`)
	if err != nil {
		return nil, postgres.Wrap("audit partitions", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, postgres.Wrap("audit partitions", err)
	}
	existing := map[string]bool{}
	for _, name := range names {
		if strings.HasPrefix(name, partitionPrefix) {
			existing[name] = true
		}
	}
	return existing, nil
}

// makePartition creates a month's partition, with the rows that went to the
// DEFAULT partition because it was missing: Postgres refuses to attach it while
// the DEFAULT one holds rows of its range.
//
// Grants wait meanwhile, so a month with very many such rows is not made: they
// stay in the DEFAULT partition and age there.
func (s *Store) makePartition(ctx context.Context, first time.Time) (made bool, err error) {
	name := "entitlement." + partitionName(first)
	var waiting int
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM (
		SELECT FROM entitlement.entitlement_audit_default WHERE occurred_at >= $1 AND occurred_at < $2 LIMIT $3) w`,
		first, first.AddDate(0, 1, 0), maxMoved+1).Scan(&waiting); err != nil {
		return false, postgres.Wrap("audit partitions", err)
	}
	if waiting > maxMoved {
		return false, nil
	}
	from, to := first.Format(time.DateOnly), first.AddDate(0, 1, 0).Format(time.DateOnly)
	return true, s.alone(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE entitlement.entitlement_audit IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		for _, sql := range []string{
			fmt.Sprintf(`CREATE TABLE %s (LIKE entitlement.entitlement_audit INCLUDING ALL)`, name),
			fmt.Sprintf(`WITH moved AS (
				DELETE FROM entitlement.entitlement_audit_default
				WHERE occurred_at >= '%s 00:00+00' AND occurred_at < '%s 00:00+00' RETURNING *)
				INSERT INTO %s SELECT * FROM moved`, from, to, name),
			fmt.Sprintf(`ALTER TABLE entitlement.entitlement_audit ATTACH PARTITION %s FOR VALUES FROM ('%s 00:00+00') TO ('%s 00:00+00')`, name, from, to),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// alone runs do in a transaction that waits for locks only briefly and that no
// other cleanup runs beside.
func (s *Store) alone(ctx context.Context, do func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+lockTimeout+`'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('entitlement.entitlement_audit', 0))`); err != nil {
			return err
		}
		return do(tx)
	})
	if code := postgres.Code(err); code == "42P07" || code == "42P01" {
		// Another instance made or dropped it while we waited: that is what we wanted.
		return nil
	}
	return postgres.Wrap("audit partitions", err)
}
