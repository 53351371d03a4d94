package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Finished describes a leased table to operators, who look at its FAILED rows and requeue
// them. The strings become SQL, so they must be constants.
type Finished struct {
	Pool  *pgxpool.Pool
	Name  string // of the table, with its schema
	ID    string // uuid primary key
	Done  string // the column with the time at which a row was done, NULL in others
	Owner string // the column that says whose a row is
	// Also is an optional statement, run in the one that requeues rows; changed has their
	// ids.
	Also string
	// Format and Parse write and read ids as callers know them.
	Format func(uuid.UUID) string
	Parse  func(string) (uuid.UUID, error)
}

// FailedRow is a row that was given up.
type FailedRow struct {
	ID           string    `json:"id" doc:"Take it for ids in a filter." example:"n_01h455vb4pex5vsknk084sn02q"`
	EventID      string    `json:"event_id" example:"019b9c68-4a40-7c61-8b0e-2f1d7f3c9a10"`
	EventType    string    `json:"event_type" example:"EntitlementGranted"`
	Owner        string    `json:"owner" doc:"The user or, in an outbox, the aggregate." example:"u_123"`
	Attempts     int       `json:"attempts" example:"10"`
	CreatedAt    time.Time `json:"created_at"`
	FailedAt     time.Time `json:"failed_at"`
	Error        string    `json:"error" doc:"Why the last attempt failed." example:"the endpoint answered 410"`
	TraceID      string    `json:"trace_id,omitempty" doc:"Of the request that caused it." example:"4bf92f3577b34da6a3ce929d0e0e4736"`
	Payload      string    `json:"payload" doc:"As it is stored, up to 16 KiB of it." example:"{\"event_type\":\"EntitlementGranted\"}"`
	PayloadBytes int       `json:"payload_bytes" doc:"How long all of it is." example:"312"`
}

// maxShown bounds the bytes of a payload in a list.
const maxShown = 16 << 10

// examined bounds the rows that one batch reads when few of them fit its filter, searched
// those that a list or a count reads.
const (
	examined = 5000
	searched = 500_000
)

// failedRows is the condition of FAILED rows by which their index is defined.
func (f Finished) failedRows() string { return "finished_at IS NOT NULL AND " + f.Done + " IS NULL" }

// fit is the condition of rows that fit a filter, whose values are $1 to $6.
func (f Finished) fit() string {
	return `(cardinality($1::uuid[]) = 0 OR ` + f.ID + ` = ANY ($1))
		AND ($2 = '' OR event_type = $2) AND ($3 = '' OR ` + f.Owner + ` = $3)
		AND ($4 = '' OR position($4 IN coalesce(last_error, '')) > 0)
		AND ($5::timestamptz IS NULL OR finished_at >= $5) AND ($6::timestamptz IS NULL OR finished_at < $6)`
}

// values are those of fit.
func (f Finished) values(filter act.Filter) ([]any, error) {
	ids := make([]uuid.UUID, len(filter.IDs))
	for i, text := range filter.IDs {
		var err error
		if ids[i], err = f.Parse(text); err != nil {
			return nil, act.ErrNoRow
		}
	}
	return []any{ids, filter.EventType, filter.Owner, filter.ErrorContains, filter.FailedFrom, filter.FailedBefore}, nil
}

// place is a row's place in the order of failing.
func place(at time.Time, id uuid.UUID) string { return fmt.Sprintf("%d %s", at.UnixMicro(), id) }

// latest is the end of time.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// readPlace is the opposite of place. Its error is cursor.Err.
func readPlace(text string) (at time.Time, id uuid.UUID, err error) {
	micros, rest, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(micros, 10, 64)
	if err == nil {
		id, err = uuid.Parse(rest)
	}
	// Postgres takes no time that is further away than it knows.
	if err != nil || n < 0 || n > latest.UnixMicro() {
		return at, id, cursor.Err
	}
	return time.UnixMicro(n).UTC(), id, nil
}

// List returns up to limit FAILED rows that fit a filter, the latest failure first, and
// the cursor of the next page, "" on the last. It looks at the latest 500,000 of them.
func (f Finished) List(ctx context.Context, filter act.Filter, from string, limit int) ([]FailedRow, string, error) {
	values, err := f.values(filter)
	if err != nil {
		return nil, "", err
	}
	before, beforeID := latest, uuid.Max
	if from != "" {
		text, err := cursor.ReadText(from)
		if err == nil {
			before, beforeID, err = readPlace(text)
		}
		if err != nil {
			return nil, "", err
		}
	}
	limit = cursor.Limit(limit)
	rows, err := f.Pool.Query(ctx, fmt.Sprintf(`
		SELECT %[1]s, event_id::text, event_type, %[2]s, attempt_count, created_at, finished_at, coalesce(last_error, ''),
		       split_part(traceparent, '-', 2), left(payload::text, $10), octet_length(payload::text)
		FROM (
			SELECT * FROM %[3]s WHERE %[4]s AND (finished_at, %[1]s) < ($7, $8)
			ORDER BY finished_at DESC, %[1]s DESC LIMIT %[6]d
		) t WHERE %[5]s
		ORDER BY t.finished_at DESC, t.%[1]s DESC LIMIT $9`, f.ID, f.Owner, f.Name, f.failedRows(), f.fit(), searched),
		append(values, before, beforeID, limit+1, maxShown)...)
	if err != nil {
		return nil, "", postgres.Wrap("list failed rows", err)
	}
	var ids []uuid.UUID
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r FailedRow, err error) {
		var id uuid.UUID
		err = row.Scan(&id, &r.EventID, &r.EventType, &r.Owner, &r.Attempts, &r.CreatedAt, &r.FailedAt, &r.Error, &r.TraceID, &r.Payload, &r.PayloadBytes)
		ids = append(ids, id)
		r.ID, r.CreatedAt, r.FailedAt = f.Format(id), r.CreatedAt.UTC(), r.FailedAt.UTC()
		r.Payload = postgres.Storable(r.Payload, maxShown)
		return r, err
	})
	if err != nil {
		return nil, "", postgres.Wrap("list failed rows", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.Text(place(list[last].FailedAt, ids[last])) })
	return page, next, nil
}

// Requeue returns the work that makes FAILED rows PENDING, with all of their attempts.
func (f Finished) Requeue() act.Work { return requeue{f} }

type requeue struct{ Finished }

// Count counts the FAILED rows that fit, of the first 500,000.
func (r requeue) Count(ctx context.Context, filter act.Filter) (n int, err error) {
	values, err := r.values(filter)
	if err != nil {
		return 0, err
	}
	err = r.Pool.QueryRow(ctx, fmt.Sprintf(`
		SELECT count(*) FROM (
			SELECT FROM (SELECT * FROM %s WHERE %s ORDER BY finished_at, %s LIMIT %d) first WHERE %s LIMIT $7
		) fitting`, r.Name, r.failedRows(), r.ID, searched, r.fit()), append(values, act.MaxCounted)...).Scan(&n)
	return n, postgres.Wrap("count failed rows", err)
}

// A batch walks through the FAILED rows in the order of failing, and ends at the row with
// which it has changed enough, or when it has read enough. A row that somebody else
// changed meanwhile stays as it is.
const requeueSQL = `
WITH examined AS MATERIALIZED (
	SELECT {id} AS id, finished_at, {fit} AS fits
	FROM {table} WHERE {failed} AND (finished_at, {id}) > ($7, $8) AND finished_at <= $9
	ORDER BY finished_at, {id} LIMIT $10
), counted AS (
	SELECT *, count(*) FILTER (WHERE fits) OVER (ORDER BY finished_at, id) AS nth FROM examined
), reached AS MATERIALIZED (
	SELECT * FROM counted WHERE nth < $11 OR nth = $11 AND fits
), changed AS (
	UPDATE {table} t SET status = {pending}, finished_at = NULL, attempt_count = 0, next_retry_at = now()
	FROM reached r WHERE r.fits AND t.{id} = r.id AND t.status = {failedStatus}
	RETURNING t.{id} AS id
){also}
SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM reached), (SELECT count(*) FROM examined),
       last.finished_at, last.id
FROM (SELECT 1) one LEFT JOIN (SELECT finished_at, id FROM reached ORDER BY finished_at DESC, id DESC LIMIT 1) last ON true`

// Batch requeues up to limit rows.
func (r requeue) Batch(ctx context.Context, tx pgx.Tx, a act.Act, limit int) (p act.Progress, err error) {
	values, err := r.values(a.Filter)
	if err != nil {
		return act.Progress{}, err
	}
	var after time.Time
	var afterID uuid.UUID
	if a.Position() != "" {
		if after, afterID, err = readPlace(a.Position()); err != nil {
			return act.Progress{}, fmt.Errorf("position of the act: %w", err)
		}
	}
	also := ""
	if r.Also != "" {
		also = ", also AS (" + r.Also + ")"
	}
	sql := strings.NewReplacer("{id}", r.ID, "{table}", r.Name, "{failed}", r.failedRows(), "{fit}", r.fit(), "{also}", also,
		"{pending}", "'"+Pending+"'", "{failedStatus}", "'"+Failed+"'").Replace(requeueSQL)
	var reached, read int
	var last *time.Time
	var lastID *uuid.UUID
	err = tx.QueryRow(ctx, sql, append(values, after, afterID, a.Begun(), examined, limit)...).Scan(&p.Done, &reached, &read, &last, &lastID)
	if err != nil {
		return act.Progress{}, err
	}
	p.Position, p.More = a.Position(), reached < read || read == examined
	if last != nil && lastID != nil {
		p.Position = place(*last, *lastID)
	}
	return p, nil
}

// Republish returns the work that makes finished rows PENDING again, for consumers that
// lost them. Only rows that a filter names are: nobody means all of them. Rows that were
// done less than quiet ago stay, because the receiver may still take a repetition for a
// duplicate; so do rows older than memory, which consumers may take for new.
func (f Finished) Republish(quiet, memory time.Duration) act.Work { return republish{f, quiet, memory} }

type republish struct {
	Finished
	quiet, memory time.Duration
}

func (r republish) rows() string {
	return r.Done + ` IS NOT NULL AND ` + r.Done + ` < now() - $7::interval AND ` + r.Done + ` > now() - $8::interval AND ` + r.fit()
}

// Count counts the rows that fit.
func (r republish) Count(ctx context.Context, filter act.Filter) (n int, err error) {
	values, err := r.values(filter)
	if err != nil {
		return 0, err
	}
	if len(filter.IDs) == 0 {
		return 0, act.ErrNoRow
	}
	err = r.Pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s`, r.Name, r.rows()), append(values, r.quiet, r.memory)...).Scan(&n)
	return n, postgres.Wrap("count published rows", err)
}

// Batch republishes the rows that the filter names, all at once.
func (r republish) Batch(ctx context.Context, tx pgx.Tx, a act.Act, _ int) (p act.Progress, err error) {
	values, err := r.values(a.Filter)
	if err == nil && len(a.Filter.IDs) == 0 {
		err = act.ErrNoRow
	}
	if err != nil {
		return act.Progress{}, err
	}
	tag, err := tx.Exec(ctx, fmt.Sprintf(`
		UPDATE %[1]s SET status = '%[2]s', finished_at = NULL, attempt_count = 0, next_retry_at = now()
		WHERE %[3]s IN (SELECT %[3]s FROM %[1]s WHERE %[4]s ORDER BY %[3]s LIMIT $9 FOR UPDATE)`, r.Name, Pending, r.ID, r.rows()),
		append(values, r.quiet, r.memory, a.AtMost)...)
	return act.Progress{Done: int(tag.RowsAffected())}, err
}
