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
		"IF k.status IS DISTINCT FROM 'IN_PROGRESS' OR k.attempt IS DISTINCT FROM p_attempt THEN", "IF false THEN",
		"before it reaches Postgres", "a terminal answer changed",
	},
	"does not look, and comes late": {
		"IF k.status IS DISTINCT FROM 'IN_PROGRESS' OR k.attempt IS DISTINCT FROM p_attempt THEN", "IF false THEN",
		"before it reaches Postgres, for longer than it may take", "a terminal answer changed",
	},
	"does not lock the key": {
		"WHERE idempotency_key_id = p_key_id FOR UPDATE;", "WHERE idempotency_key_id = p_key_id;",
		"at the lock of an account, with that of its key", "a terminal answer changed",
	},
	"locks the key after the accounts": {
		"WHERE idempotency_key_id = p_key_id FOR UPDATE;", "WHERE idempotency_key_id = p_key_id; PERFORM FROM core.account WHERE account_id IN (p_from, p_to) FOR NO KEY UPDATE;",
		"at the lock of an account, with that of its key", "a terminal answer changed",
	},
	"does not store the answer": {
		"SET status = ended_as, error_code = code, response_snapshot = snapshot, completed_at = at_time,", "SET started_at = started_at,",
		"committed, before the answer", `and made`,
	},
	"stores another answer than it gives": {
		"response_snapshot = snapshot, completed_at", "response_snapshot = snapshot || ' ', completed_at",
		"committed, before the answer", "was answered in 2 ways",
	},
	"moves the money twice": {
		"SET balance = balance + p_amount WHERE account_id = p_to;", "SET balance = balance + 2 * p_amount WHERE account_id = p_to;",
		"at the lock of an account, with that of its key", "not all money is there",
	},
	"writes its event twice": {
		"INSERT INTO core.ledger_due", "INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at) VALUES (gen_random_uuid(), p_transfer_text, 'TransferCompleted', '{}', now()); INSERT INTO core.ledger_due",
		"at the lock of its key", "has the events",
	},
	"forgets the ledger": {
		"INSERT INTO core.ledger_due (transfer_id) VALUES (p_transfer);", "",
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
	a.plant(`'lock_timeout', '4s'`, fmt.Sprintf(`'lock_timeout', '%dms'`, hurried.Milliseconds()))
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
