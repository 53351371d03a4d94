// Package act does to many rows what an operator asks for: requeue them, replay them,
// discard them. It records who asked and why, works in batches of a bounded rate, shows
// its progress, and can be stopped and resumed.
//
// The record is in the database of the rows. Each batch is one transaction that changes
// rows and record together: nothing happens unrecorded, and progress is exact whatever
// dies. The record's row lock, held for that transaction, keeps two workers from the same
// act.
//
// An act works on what was there when it began. A row that it requeued and that failed
// again is not requeued again.
package act

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Kinds of acts.
const (
	Requeue   = "requeue"   // FAILED rows are PENDING again
	Republish = "republish" // so are PUBLISHED events, for a consumer that lost them
	Replay    = "replay"    // messages that could not be read are handed over again
	Discard   = "discard"   // they are deleted
	SignOut   = "sign-out"  // sessions are ended
	Export    = "export"    // all that is kept about a person is handed out
	Erase     = "erase"     // a user's identities and personal data are deleted
)

// Statuses of an act; see docs/architecture.md for the diagram.
const (
	Running = "RUNNING"
	Stopped = "STOPPED"
	Done    = "DONE"
)

// Limits of an act.
const (
	MaxPerSecond = 1000
	// MaxCounted bounds how many rows a dry run counts.
	MaxCounted = 100_000
	// batch bounds the rows of one transaction, and batchTimeout how long it takes: the
	// operator who stops an act waits for it.
	batch        = 500
	batchTimeout = 4 * time.Second
	// maxTries bounds the batches that fail or die one after the other.
	maxTries = 5
)

// Filter selects rows: those that fit all of its fields. The zero Filter selects all.
type Filter struct {
	IDs           []string   `json:"ids,omitempty" required:"false" maxItems:"500" doc:"These rows; up to 500."`
	EventType     string     `json:"event_type,omitempty" required:"false" maxLength:"255" doc:"Of this type." example:"EntitlementGranted"`
	Owner         string     `json:"owner,omitempty" required:"false" maxLength:"255" doc:"Of this user or, in an outbox, this aggregate." example:"u_123"`
	ErrorContains string     `json:"error_contains,omitempty" required:"false" maxLength:"200" doc:"Whose last error contains this text." example:"503"`
	FailedFrom    *time.Time `json:"failed_from,omitempty" required:"false" doc:"That failed at this time or later."`
	FailedBefore  *time.Time `json:"failed_before,omitempty" required:"false" doc:"That failed before this time."`
}

// Act is what an operator does, and how far it is.
type Act struct {
	ID         string     `json:"act_id" example:"act_01h455vb4pex5vsknk084sn02q"`
	Kind       string     `json:"kind" enum:"requeue,republish,replay,discard,sign-out,export,erase" doc:"What is done."`
	Queue      string     `json:"queue" doc:"Where." example:"notifications"`
	Filter     Filter     `json:"filter" doc:"To which rows."`
	Actor      string     `json:"actor" doc:"Who asked for it: a user or a service." example:"ops"`
	Reason     string     `json:"reason" doc:"Why." example:"INC-42: the receiver is back"`
	Status     string     `json:"status" enum:"RUNNING,STOPPED,DONE" doc:"STOPPED may be resumed; DONE is final."`
	PerSecond  int        `json:"per_second" doc:"Rows a second, at most." example:"100"`
	AtMost     int64      `json:"at_most" doc:"Rows in all, at most." example:"1000"`
	Done       int64      `json:"done" doc:"Rows that were changed." example:"250"`
	Skipped    int64      `json:"skipped" doc:"Rows that fit and could not be changed, such as messages that are still unreadable." example:"0"`
	LastError  string     `json:"last_error,omitempty" doc:"Why the last batch has to be repeated, or why the last row was skipped." example:"The database cannot be reached."`
	StoppedBy  string     `json:"stopped_by,omitempty" doc:"Who stopped it last." example:"olga"`
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at" doc:"null until it is DONE."`

	key      uuid.UUID
	hash     []byte // of the request
	position string
}

// Begun is when the act began, by the database's clock: rows that failed later are not
// its.
func (a Act) Begun() time.Time { return a.CreatedAt }

// Position is where the last batch ended, as its Work reported it; "" at first.
func (a Act) Position() string { return a.position }

// Progress is what a batch did.
type Progress struct {
	Done, Skipped int
	Position      string // where the next batch begins
	More          bool   // rows may be left
	Error         string // why a row was skipped
	// Rest, when above zero, is the time before the next batch; otherwise the act's rate
	// decides.
	Rest time.Duration
}

// Work is one kind of act on one queue.
type Work interface {
	// Count returns how many rows fit, up to MaxCounted. Among very many rows it may look at
	// some of them only.
	Count(ctx context.Context, f Filter) (int, error)
	// Batch changes up to limit rows in tx.
	Batch(ctx context.Context, tx pgx.Tx, a Act, limit int) (Progress, error)
}

// Errors for callers.
var (
	ErrNotFound = fault.New(fault.NotFound, "act_not_found", "There is no such act; list them at /v1/operations/acts.")
	ErrEnded    = fault.New(fault.Conflict, "act_ended", "The act is done and cannot be stopped or resumed; read it for what it did.")
	ErrNothing  = fault.New(fault.Conflict, "nothing_to_do", "No row fits the filter now: it may be done already, the rows may be gone, or an event to republish is younger than 130 s or too old for its consumers. List the queue to see what is there.")
	ErrUnknown  = fault.New(fault.Invalid, "act_unknown", "This cannot be done to this queue; requeue takes outboxes and notifications, republish outboxes, replay and discard dead letters, sign-out sessions, erase accounts.")
	ErrNoOwner  = fault.New(fault.Invalid, "filter_invalid", "Dead letters have no owner that could be trusted; filter them by id, type, error or time.")
	ErrNoRow    = fault.New(fault.Invalid, "ids_invalid", "An id in the filter is none of this queue's; take them from its list.")
	ErrNoText   = fault.New(fault.Invalid, "filter_invalid", "The filter has text that no database can hold; send UTF-8 without the character U+0000.")
)

// Desk begins the acts on the rows of one database, and works on them.
type Desk struct {
	Table string // of its records, with the schema
	pool  *pgxpool.Pool
	works map[string]Work
}

// NewDesk returns a desk whose records are in table, a constant.
func NewDesk(pool *pgxpool.Pool, table string) *Desk {
	return &Desk{Table: table, pool: pool, works: map[string]Work{}}
}

// Does makes the desk do work of a kind on a queue. Call it before the first act.
func (d *Desk) Does(kind, queue string, work Work) *Desk {
	d.works[kind+" "+queue] = work
	return d
}

// Order is what an operator asks for.
type Order struct {
	Act         // Kind, Queue, Filter, Actor, Reason, PerSecond, AtMost
	Key  string // the Idempotency-Key
	Hash []byte // the request's fingerprint
}

// Count is the dry run of an order: how many rows fit now, up to MaxCounted.
func (d *Desk) Count(ctx context.Context, o Order) (int, error) {
	work := d.works[o.Kind+" "+o.Queue]
	if work == nil {
		return 0, ErrUnknown
	}
	for _, text := range []string{o.Filter.EventType, o.Filter.Owner, o.Filter.ErrorContains} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return 0, ErrNoText
		}
	}
	return work.Count(ctx, o.Filter)
}

const columns = `act_id, kind, queue, filter, actor, reason, status, per_second, at_most, done, skipped,
	position, coalesce(last_error, ''), coalesce(stopped_by, ''), created_at, finished_at, request_hash`

func scan(row pgx.CollectableRow) (a Act, err error) {
	var filter []byte
	err = row.Scan(&a.key, &a.Kind, &a.Queue, &filter, &a.Actor, &a.Reason, &a.Status, &a.PerSecond, &a.AtMost, &a.Done, &a.Skipped,
		&a.position, &a.LastError, &a.StoppedBy, &a.CreatedAt, &a.FinishedAt, &a.hash)
	if err != nil {
		return Act{}, err
	}
	a.ID, a.CreatedAt = id.Text(id.Act, a.key), a.CreatedAt.UTC()
	if a.FinishedAt != nil {
		at := a.FinishedAt.UTC()
		a.FinishedAt = &at
	}
	return a, json.Unmarshal(filter, &a.Filter)
}

// Begin records an order as a RUNNING act. The same order with the same key is the act that
// it made the first time. Errors: ErrUnknown, ErrNothing, idempotency.ErrReused.
func (d *Desk) Begin(ctx context.Context, o Order) (Act, error) {
	if a, found, err := d.byKey(ctx, o); found || err != nil {
		return a, err
	}
	n, err := d.Count(ctx, o)
	if err != nil {
		return Act{}, err
	}
	if n == 0 {
		// An equal request may have done it meanwhile.
		if a, found, err := d.byKey(ctx, o); found || err != nil {
			return a, err
		}
		return Act{}, ErrNothing
	}
	return d.record(ctx, o, Running)
}

// Note records an order that is carried out at once, by the caller, as a DONE act. An order
// with the same key is recorded once.
func (d *Desk) Note(ctx context.Context, o Order) (Act, error) {
	o.PerSecond, o.AtMost = 1, 1
	return d.record(ctx, o, Done)
}

// record inserts an order's act, unless it is there, and returns it. A DONE one has changed
// all that it may.
func (d *Desk) record(ctx context.Context, o Order, status string) (Act, error) {
	filter, err := json.Marshal(o.Filter)
	if err != nil {
		return Act{}, err
	}
	_, err = d.pool.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %s (act_id, kind, queue, filter, actor, reason, idem_key, request_hash, per_second, at_most, status, done, finished_at)
		VALUES ($1, $2, $3, $4::jsonb, $5, $6, $7, $8, $9, $10::bigint, $11::text,
			CASE WHEN $11::text = 'DONE' THEN $10::bigint ELSE 0 END, CASE WHEN $11::text = 'DONE' THEN now() END)
		ON CONFLICT (actor, idem_key) DO NOTHING`, d.Table),
		id.New(), o.Kind, o.Queue, string(filter), o.Actor, o.Reason, o.Key, o.Hash, o.PerSecond, o.AtMost, status)
	if err != nil {
		return Act{}, postgres.Wrap("record act", err)
	}
	a, _, err := d.byKey(ctx, o)
	return a, err
}

func (d *Desk) byKey(ctx context.Context, o Order) (Act, bool, error) {
	a, found, err := only(d.pool.Query(ctx, d.selecting()+`WHERE actor = $1 AND idem_key = $2`, o.Actor, o.Key))
	if found && !bytes.Equal(a.hash, o.Hash) {
		return Act{}, false, idempotency.ErrReused
	}
	return a, found, postgres.Wrap("read act", err)
}

func (d *Desk) selecting() string { return `SELECT ` + columns + ` FROM ` + d.Table + ` ` }

// only returns the act of rows that are one or none.
func only(rows pgx.Rows, err error) (Act, bool, error) {
	if err != nil {
		return Act{}, false, err
	}
	a, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return Act{}, false, nil
	}
	return a, err == nil, err
}

// List returns up to limit acts that began before the one with the id before, newest
// first; uuid.Max is for the newest.
func (d *Desk) List(ctx context.Context, before uuid.UUID, limit int) ([]Act, error) {
	rows, err := d.pool.Query(ctx, d.selecting()+`WHERE act_id < $1 ORDER BY act_id DESC LIMIT $2`, before, limit)
	if err != nil {
		return nil, postgres.Wrap("list acts", err)
	}
	list, err := pgx.CollectRows(rows, scan)
	return list, postgres.Wrap("list acts", err)
}

// Get returns an act, or ErrNotFound.
func (d *Desk) Get(ctx context.Context, actID string) (Act, error) {
	key, err := id.Parse(id.Act, actID)
	if err != nil {
		return Act{}, ErrNotFound
	}
	a, found, err := only(d.pool.Query(ctx, d.selecting()+`WHERE act_id = $1`, key))
	if err == nil && !found {
		return Act{}, ErrNotFound
	}
	return a, postgres.Wrap("read act", err)
}

// Stop stops an act after its current batch, which it waits for. It may be repeated.
func (d *Desk) Stop(ctx context.Context, actID, by string) (Act, error) {
	return d.turn(ctx, actID, `status = 'STOPPED', stopped_by = $2`, by)
}

// Resume has a stopped act go on where it was, when it is due. It may be repeated.
func (d *Desk) Resume(ctx context.Context, actID string) (Act, error) {
	return d.turn(ctx, actID, `status = 'RUNNING', tries = 0`)
}

func (d *Desk) turn(ctx context.Context, actID, set string, args ...any) (Act, error) {
	a, err := d.Get(ctx, actID)
	if err != nil {
		return Act{}, err
	}
	tag, err := d.pool.Exec(ctx, `UPDATE `+d.Table+` SET `+set+` WHERE act_id = $1 AND status <> 'DONE'`, append([]any{a.key}, args...)...)
	if err != nil {
		return Act{}, postgres.Wrap("change act", err)
	}
	if tag.RowsAffected() == 0 {
		return Act{}, ErrEnded
	}
	return d.Get(ctx, actID)
}

// again is how long an act rests after a batch that failed.
const again = 5 * time.Second

// maxWait bounds how long Step waits for an act that has used up its rate.
const maxWait = time.Second

// Step works on one batch of the act that is due first, and reports what it changed and
// whether an act is left that is due soon. A batch that fails is noted in its act's record
// and keeps no other act waiting; its error goes to report.
func (d *Desk) Step(ctx context.Context, report func(Act, error)) (p Progress, err error) {
	tried, found, err := d.try(ctx)
	if err != nil || !found {
		if err == nil {
			err = d.wait(ctx, &p)
		}
		return p, postgres.Wrap("act", err)
	}
	batching, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	err = pgx.BeginFunc(batching, d.pool, func(tx pgx.Tx) error {
		a, found, err := d.due(batching, tx, tried.key)
		if err != nil || !found {
			return err
		}
		p, err = d.batch(batching, tx, a)
		return err
	})
	if err != nil && ctx.Err() == nil {
		report(tried, err)
		_, err = d.pool.Exec(ctx, `UPDATE `+d.Table+` SET last_error = $2, next_at = now() + $3::interval WHERE act_id = $1 AND status = 'RUNNING'`,
			tried.key, fault.Detail(postgres.Wrap("act", err)), again)
		p = Progress{}
	}
	p.More = true
	return p, postgres.Wrap("act", err)
}

// try finds the act whose turn it is, and counts a try before it is made: a batch that kills
// its process is not tried for ever. Acts of kinds that this version does not know are left
// to one that does.
func (d *Desk) try(ctx context.Context) (Act, bool, error) {
	return only(d.pool.Query(ctx, `
		UPDATE `+d.Table+` SET tries = tries + 1,
			status = CASE WHEN tries >= $2 THEN 'STOPPED' ELSE status END,
			stopped_by = CASE WHEN tries >= $2 THEN 'console' ELSE stopped_by END
		WHERE act_id = (
			SELECT act_id FROM `+d.Table+`
			WHERE status = 'RUNNING' AND next_at <= now() AND kind || ' ' || queue = ANY ($1)
			ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
		RETURNING `+columns, d.known(), maxTries))
}

// due locks an act, unless another worker has it or somebody stopped it.
func (d *Desk) due(ctx context.Context, tx pgx.Tx, key uuid.UUID) (Act, bool, error) {
	return only(tx.Query(ctx, d.selecting()+`WHERE act_id = $1 AND status = 'RUNNING' AND next_at <= now() FOR UPDATE SKIP LOCKED`, key))
}

func (d *Desk) known() []string { return slices.Collect(maps.Keys(d.works)) }

func (d *Desk) batch(ctx context.Context, tx pgx.Tx, a Act) (Progress, error) {
	limit := int(min(batch, int64(a.PerSecond), a.AtMost-a.Done))
	p, err := d.works[a.Kind+" "+a.Queue].Batch(ctx, tx, a, limit)
	if err != nil {
		return Progress{}, err
	}
	rest := max(p.Rest, time.Duration(float64(p.Done+p.Skipped)/float64(a.PerSecond)*float64(time.Second)))
	ended := !p.More || a.Done+int64(p.Done) >= a.AtMost
	_, err = tx.Exec(ctx, `
		UPDATE `+d.Table+`
		SET tries = 0, done = done + $2, skipped = skipped + $3, position = $4, next_at = now() + $5::interval, last_error = nullif($6, ''),
		    status = CASE WHEN $7 THEN 'DONE' ELSE status END, finished_at = CASE WHEN $7 THEN now() END
		WHERE act_id = $1`, a.key, p.Done, p.Skipped, p.Position, rest, postgres.Storable(p.Error, 1000), ended)
	return p, err
}

// wait rests until an act has its turn again, for a moment at most.
func (d *Desk) wait(ctx context.Context, p *Progress) error {
	var rest *time.Duration
	err := d.pool.QueryRow(ctx, `SELECT min(next_at) - now() FROM `+d.Table+`
		WHERE status = 'RUNNING' AND kind || ' ' || queue = ANY ($1)`, d.known()).Scan(&rest)
	if err != nil || rest == nil || *rest > maxWait {
		return postgres.Wrap("acts that are due", err)
	}
	p.More = true
	select {
	case <-ctx.Done():
	case <-time.After(max(*rest, 100*time.Millisecond)): // another worker may hold it
	}
	return nil
}
