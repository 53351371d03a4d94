package transfer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// planted is a bug in move_money: the part of its source that is replaced, the
// replacement, the race in which the bug shows, and the problem that names it.
type planted struct{ part, instead, race, noticed string }

var plants = map[string]planted{
	"does not look whether the key is still its own": {
		"coalesce(k.status = 'IN_PROGRESS' AND k.attempt = a.attempt, false)", "true",
		"before it reaches Postgres", "a terminal answer changed",
	},
	"does not look, and comes late": {
		"coalesce(k.status = 'IN_PROGRESS' AND k.attempt = a.attempt, false)", "true",
		"before it reaches Postgres, for longer than it may take", "a terminal answer changed",
	},
	"does not lock the key": {
		"ORDER BY k.idempotency_key_id FOR UPDATE OF k", "ORDER BY k.idempotency_key_id",
		"at the lock of an account, with that of its key", "a terminal answer changed",
	},
	"locks the key after the accounts": {
		"ORDER BY k.idempotency_key_id FOR UPDATE OF k\n    ) k ON k.idempotency_key_id = a.key_id;",
		"ORDER BY k.idempotency_key_id) k ON k.idempotency_key_id = a.key_id; PERFORM FROM core.account WHERE account_id = ANY (p_from || p_to) ORDER BY account_id FOR NO KEY UPDATE;",
		"at the lock of an account, with that of its key", "a terminal answer changed",
	},
	"does not store the answer": {
		"SET status = a.ended_as, error_code = a.code, response_snapshot = a.snapshot, completed_at = at_time,", "SET started_at = k.started_at,",
		"committed, before the answer", `and made`,
	},
	"stores another answer than it gives": {
		"response_snapshot = a.snapshot, completed_at", "response_snapshot = a.snapshot || ' ', completed_at",
		"committed, before the answer", "was answered in 2 ways",
	},
	"moves the money twice": {
		"balances[taker] := balances[taker] + p_amounts[i];", "balances[taker] := balances[taker] + 2 * p_amounts[i];",
		"at the lock of an account, with that of its key", "not all money is there",
	},
	"writes its event twice": {
		"), due AS (", "), twice AS (INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at) SELECT gen_random_uuid(), transfer_text, 'TransferCompleted', '{}', now() FROM moved), due AS (",
		"at the lock of its key", "has the events",
	},
	"forgets the ledger": {
		"INSERT INTO core.ledger_due (transfer_id) SELECT transfer FROM moved", "INSERT INTO core.ledger_due (transfer_id) SELECT transfer FROM moved WHERE false",
		"at the lock of its key", "has the entries",
	},
}

// The checks of the races notice a faulty move_money.
func TestPlantedBugsAreNoticed(t *testing.T) {
	t.Parallel()
	together(t, plants, func(t *testing.T, p planted) {
		r := newRace(t)
		r.plant(p.part, p.instead)
		races[p.race].run(r)
		<-r.answered
		list := strings.Join(r.found(), "\n")
		if !strings.Contains(list, p.noticed) {
			t.Errorf("the bug was not noticed: found %q, want %q in it", list, p.noticed)
		}
		t.Log(list)
	})
}

// hurried is the timeout of TX1's locks in tests that wait for it.
const hurried = 2 * time.Second

func (a *arena) hurryLocks() {
	a.t.Helper()
	a.plant(`WHEN 1 THEN '4s'`, fmt.Sprintf(`WHEN 1 THEN '%dms'`, hurried.Milliseconds()))
}

// plant replaces a part of move_money's source, which must be there once, in this test's
// own database.
func (a *arena) plant(part, instead string) {
	a.t.Helper()
	source := a.one(`SELECT pg_get_functiondef($1::regproc)`, tx1)
	if n := strings.Count(source, part); n != 1 {
		a.t.Fatalf("%q is %d times in the source, want once: %s", part, n, source)
	}
	if _, err := a.pool.Exec(a.t.Context(), strings.Replace(source, part, instead, 1)); err != nil {
		a.t.Fatal(err)
	}
}
