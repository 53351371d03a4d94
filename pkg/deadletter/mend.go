package deadletter

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Box is a table of letters, for operators. Its strings become SQL, so they must be
// constants.
type Box struct {
	Pool  *pgxpool.Pool
	Table string
	Where string // which of its rows are raw messages; "true" for all
}

// Kept is a letter as operators see it.
type Kept struct {
	ID           string              `json:"id" doc:"Take it for ids in a filter." example:"17"`
	EventID      string              `json:"event_id,omitempty" doc:"What the message says of itself; may be anything." example:"019b9c68-4a40-7c61-8b0e-2f1d7f3c9a10"`
	EventType    string              `json:"event_type,omitempty" doc:"The same." example:"miniserver.entitlement.v1.EntitlementGranted"`
	Error        string              `json:"error" doc:"Why it could not be accepted." example:"unreadable event: type is not known"`
	CreatedAt    time.Time           `json:"created_at"`
	Headers      map[string][]string `json:"headers" doc:"As received." example:"{\"ce-type\":[\"x\"]}"`
	Message      string              `json:"message" doc:"As received, up to 16 KiB of it: text, or base64 if it is none." example:"hello"`
	Base64       bool                `json:"base64" doc:"Whether message is base64." example:"false"`
	MessageBytes int                 `json:"message_bytes" doc:"How long all of it is." example:"5"`
}

// maxShown bounds the bytes of a message in a list.
const maxShown = 16 << 10

const fit = `(cardinality($1::bigint[]) = 0 OR dead_letter_id = ANY ($1)) AND ($2 = '' OR event_type = $2)
	AND ($3 = '' OR position($3 IN error) > 0)
	AND ($4::timestamptz IS NULL OR created_at >= $4) AND ($5::timestamptz IS NULL OR created_at < $5)`

func values(filter act.Filter) ([]any, error) {
	ids := make([]int64, len(filter.IDs))
	for i, text := range filter.IDs {
		var err error
		if ids[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, act.ErrNoRow
		}
	}
	if filter.Owner != "" {
		return nil, act.ErrNoOwner
	}
	return []any{ids, filter.EventType, filter.ErrorContains, filter.FailedFrom, filter.FailedBefore}, nil
}

// List returns up to limit letters that fit a filter, newest first, and the cursor of the
// next page, "" on the last.
func (b Box) List(ctx context.Context, filter act.Filter, from string, limit int) ([]Kept, string, error) {
	args, err := values(filter)
	if err != nil {
		return nil, "", err
	}
	before, err := cursor.ReadNumber(from, 1<<62)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	rows, err := b.Pool.Query(ctx, fmt.Sprintf(`
		SELECT dead_letter_id, coalesce(event_id, ''), coalesce(event_type, ''), error, created_at,
		       raw_headers::text, substring(raw_message FROM 1 FOR $8), octet_length(raw_message)
		FROM %s WHERE %s AND %s AND dead_letter_id < $6 ORDER BY dead_letter_id DESC LIMIT $7`, b.Table, b.Where, fit),
		append(args, before, limit+1, maxShown)...)
	if err != nil {
		return nil, "", postgres.Wrap("list dead letters", err)
	}
	var ids []int64
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k Kept, err error) {
		var id int64
		var headers string
		var message []byte
		if err = row.Scan(&id, &k.EventID, &k.EventType, &k.Error, &k.CreatedAt, &headers, &message, &k.MessageBytes); err != nil {
			return k, err
		}
		ids = append(ids, id)
		k.ID, k.CreatedAt = strconv.FormatInt(id, 10), k.CreatedAt.UTC()
		k.show(message)
		return k, json.Unmarshal([]byte(headers), &k.Headers)
	})
	if err != nil {
		return nil, "", postgres.Wrap("list dead letters", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.Number(ids[last]) })
	return page, next, nil
}

// show sets the message: as text if it is, where the cut may have split a character.
func (k *Kept) show(message []byte) {
	text := message
	for range utf8.UTFMax {
		if utf8.Valid(text) || len(message) == k.MessageBytes || len(text) == 0 {
			break
		}
		text = text[:len(text)-1]
	}
	if utf8.Valid(text) {
		k.Message = string(text)
		return
	}
	k.Message, k.Base64 = base64.StdEncoding.EncodeToString(message), true
}

// Discard returns the work that deletes letters.
func (b Box) Discard() act.Work { return discard{b} }

type discard struct{ Box }

// Count counts the letters that fit.
func (b Box) Count(ctx context.Context, filter act.Filter) (n int, err error) {
	args, err := values(filter)
	if err != nil {
		return 0, err
	}
	err = b.Pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT FROM %s WHERE %s AND %s LIMIT $6) fitting`, b.Table, b.Where, fit),
		append(args, act.MaxCounted)...).Scan(&n)
	return n, postgres.Wrap("count dead letters", err)
}

// next is the condition of letters that a batch may work on; its values follow fit's.
const next = ` AND created_at <= $6 AND dead_letter_id > $7 ORDER BY dead_letter_id LIMIT $8 FOR UPDATE`

// start is where a batch begins: after the letter at which the last one ended.
func start(a act.Act) (int64, error) {
	if a.Position() == "" {
		return 0, nil
	}
	return strconv.ParseInt(a.Position(), 10, 64)
}

// Batch deletes up to limit letters.
func (d discard) Batch(ctx context.Context, tx pgx.Tx, a act.Act, limit int) (p act.Progress, err error) {
	args, err := values(a.Filter)
	if err != nil {
		return act.Progress{}, err
	}
	after, err := start(a)
	if err != nil {
		return act.Progress{}, err
	}
	last := after
	err = tx.QueryRow(ctx, fmt.Sprintf(`
		WITH chosen AS MATERIALIZED (SELECT dead_letter_id FROM %[1]s WHERE %[2]s AND %[3]s%[4]s), deleted AS (
			DELETE FROM %[1]s USING chosen WHERE %[1]s.dead_letter_id = chosen.dead_letter_id RETURNING 1
		) SELECT (SELECT count(*) FROM deleted), coalesce((SELECT max(dead_letter_id) FROM chosen), $7)`, d.Table, d.Where, fit, next),
		append(args, a.Begun(), after, limit)...).Scan(&p.Done, &last)
	p.Position, p.More = strconv.FormatInt(last, 10), p.Done == limit
	return p, err
}

// Replay returns the work that hands letters to their consumer once more, as they were
// received: accept is the consumer's, and takes an event any number of times. A letter
// that was accepted is deleted; one that still cannot be read stays, with the reason of
// now. poison tells whether an error is the event's own.
func (b Box) Replay(accept func(context.Context, []event.Record) error, poison func(error) bool) act.Work {
	return replay{b, accept, poison}
}

type replay struct {
	Box
	accept func(context.Context, []event.Record) error
	poison func(error) bool
}

type letter struct {
	id      int64
	headers map[string][]string
	message []byte
}

// Batch replays up to limit letters.
func (r replay) Batch(ctx context.Context, tx pgx.Tx, a act.Act, limit int) (p act.Progress, err error) {
	limit = min(limit, replayBatch)
	letters, err := r.read(ctx, tx, a, limit)
	if err != nil {
		return act.Progress{}, err
	}
	p = act.Progress{Position: a.Position(), More: len(letters) == limit}
	for _, l := range letters {
		p.Position = strconv.FormatInt(l.id, 10)
		record, err := event.Decode(event.FromHeaders("", l.headers, l.message))
		if err == nil {
			err = r.accept(ctx, []event.Record{record})
		}
		switch {
		case err == nil:
			p.Done++
			_, err = tx.Exec(ctx, `DELETE FROM `+r.Table+` WHERE dead_letter_id = $1`, l.id)
		case r.poison(err):
			p.Skipped++
			p.Error = err.Error()
			_, err = tx.Exec(ctx, `UPDATE `+r.Table+` SET error = $2 WHERE dead_letter_id = $1`, l.id, postgres.Storable(err.Error(), maxReasonBytes))
		}
		if err != nil {
			return act.Progress{}, err
		}
	}
	return p, nil
}

// replayBatch bounds the letters of a batch: each may have a message of a megabyte.
const replayBatch = 20

func (r replay) read(ctx context.Context, tx pgx.Tx, a act.Act, limit int) ([]letter, error) {
	args, err := values(a.Filter)
	if err != nil {
		return nil, err
	}
	after, err := start(a)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT dead_letter_id, raw_headers::text, raw_message FROM %s WHERE %s AND %s%s`, r.Table, r.Where, fit, next),
		append(args, a.Begun(), after, limit)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l letter, err error) {
		var headers string
		if err = row.Scan(&l.id, &headers, &l.message); err == nil {
			err = json.Unmarshal([]byte(headers), &l.headers)
		}
		return l, err
	})
}
