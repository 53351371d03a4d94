package transfer_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// watchEndings records from now on every change of a key after its end.
const watchEndings = `
CREATE TABLE integration.changed_after_end (note text);
CREATE FUNCTION integration.note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO integration.changed_after_end VALUES (concat_ws(' ', OLD.idempotency_key, OLD.response_snapshot, 'became', NEW.response_snapshot));
	RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER UPDATE OR DELETE ON integration.idempotency_key
	FOR EACH ROW WHEN (OLD.completed_at IS NOT NULL AND OLD.scope = 'transfer') EXECUTE FUNCTION integration.note_change()`

// row is the stored state of a key.
type row struct{ status, body, code, transfer string }

// made is a stored transfer.
type made struct {
	id, text, kind, reverses string // text is the id as the API writes it
	from, to                 int64
	amount                   string // with four decimals
}

// notice is a TransferCompleted event.
type notice struct{ key, payload string }

// stored is all keys, transfers and events of a database.
type stored struct {
	keys    map[string]row
	made    map[string]made // by the API's id
	notices map[string][]notice
}

func read(ctx context.Context, pool *pgxpool.Pool) (s stored, err error) {
	s = stored{map[string]row{}, map[string]made{}, map[string][]notice{}}
	err = each(ctx, pool, `SELECT idempotency_key, coalesce(status, ''), coalesce(response_snapshot, ''), coalesce(error_code, ''), coalesce(transfer_id::text, '')
		FROM integration.idempotency_key WHERE scope = 'transfer'`, func(r pgx.CollectableRow) error {
		var key string
		var k row
		err := r.Scan(&key, &k.status, &k.body, &k.code, &k.transfer)
		s.keys[key] = k
		return err
	})
	if err == nil {
		err = each(ctx, pool, `SELECT transfer_id::text, kind, coalesce(reverses::text, ''), from_account_id, to_account_id, amount::text FROM core.transfer`, func(r pgx.CollectableRow) error {
			var m made
			err := r.Scan(&m.id, &m.kind, &m.reverses, &m.from, &m.to, &m.amount)
			m.text = apiID(m.id)
			s.made[m.text] = m
			return err
		})
	}
	if err == nil {
		err = each(ctx, pool, `SELECT aggregate_key, traceparent, concat_ws(' ', payload->>'transfer_id', payload->>'kind', payload->>'from_account_id', payload->>'to_account_id', payload->>'amount')
			FROM integration.outbox_events WHERE event_type = 'TransferCompleted'`, func(r pgx.CollectableRow) error {
			var of string
			var n notice
			err := r.Scan(&of, &n.key, &n.payload)
			s.notices[of] = append(s.notices[of], n)
			return err
		})
	}
	return s, err
}

// problems compares the answers that v remembers with the database, and returns the
// contradictions. Nothing may run meanwhile.
func (v *witness) problems(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	s, err := read(ctx, pool)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(v.odd)
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	byKey := map[string][]made{}
	for text, m := range s.made {
		n := s.notices[text]
		if say := fmt.Sprint(text, " ", m.kind, " ", m.from, " ", m.to, " ", m.amount); len(n) != 1 || n[0].payload != say {
			note("transfer %s has the events %v, want one that says the same", say, n)
		} else if m.kind != transfer.Opening {
			byKey[n[0].key] = append(byKey[n[0].key], m)
		}
	}
	if len(s.notices) != len(s.made) {
		note("%d transfers, but events of %d", len(s.made), len(s.notices))
	}
	for key, k := range s.keys {
		for e := range v.endings[key] {
			if e.status != k.status || e.body != k.body {
				note("key %s: a caller was answered %s, but stored is %s %s", key, e.body, k.status, k.body)
			}
		}
		if len(v.endings[key]) > 1 {
			note("key %s was answered in %d ways: %v", key, len(v.endings[key]), v.endings[key])
		}
		if k.status != transfer.Succeeded {
			if len(byKey[key]) != 0 || k.transfer != "" {
				note("key %s is %q and made %s %v", key, k.status, k.transfer, byKey[key])
			}
			if k.status == transfer.Failed && k.body != fmt.Sprintf(`{"status":"FAILED","errorCode":"%s"}`, k.code) {
				note("key %s is FAILED (%s) with %s", key, k.code, k.body)
			}
		} else if m := byKey[key]; len(m) != 1 || m[0].id != k.transfer || k.body != fmt.Sprintf(`{"transferId":"%s","status":"SUCCEEDED"}`, m[0].text) {
			note("key %s is SUCCEEDED (%s, %s) and made %v", key, k.transfer, k.body, m)
		} else if !slices.ContainsFunc(v.wishes[key], func(w wish) bool { return w.isDone(m[0], s.made) }) {
			note("key %s made %+v, which nobody asked for", key, m[0])
		}
	}
	for key, m := range byKey {
		if _, found := s.keys[key]; !found {
			note("there is no key %q, which made %v", key, m)
		}
	}
	more, err := sums(ctx, pool, s.made)
	return append(list, more...), err
}

// isDone reports whether m is what w asked for.
func (w wish) isDone(m made, all map[string]made) bool {
	if w.reverses == "" {
		return m.kind == transfer.Ordinary && m.reverses == "" && m.from == w.from && m.to == w.to && units(m.amount).Cmp(units(w.amount.String())) == 0
	}
	o := all[w.reverses]
	return m.kind == transfer.Reversal && m.reverses == o.id && m.from == o.to && m.to == o.from && m.amount == o.amount
}

// apiID returns a transfer's id as the API writes it.
func apiID(text string) string { return id.Text(id.Transfer, uuid.MustParse(text)) }

// units returns a decimal number in ten-thousandths, exactly.
func units(text string) *big.Int {
	r, ok := new(big.Rat).SetString(text)
	if !ok || !r.Mul(r, big.NewRat(10000, 1)).IsInt() {
		panic("not an amount: " + text)
	}
	return r.Num()
}

func each(ctx context.Context, pool *pgxpool.Pool, sql string, row func(pgx.CollectableRow) error) error {
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
