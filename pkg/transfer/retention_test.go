package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

const day = 24 * time.Hour

var keep = transfer.Retention{Outbox: outbox.Retention{Published: 7 * day, Unreconciled: 29 * day}, Processed: 30 * day}

func (s setup) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// clean runs Cleanup to its end, in steps of 1,000 rows of a kind at most.
func (s setup) clean(r transfer.Retention) (deleted int) {
	s.t.Helper()
	for range 20 {
		n, more, err := s.Cleanup(s.t.Context(), r)
		if err != nil {
			s.t.Fatal(err)
		}
		if deleted += n; !more {
			return deleted
		}
	}
	s.t.Fatal("cleanup does not end")
	return 0
}

func (s setup) want(what, sql, want string) {
	s.t.Helper()
	if got := s.one(sql); got != want {
		s.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// The answer to a transfer is kept for ever: its key stays, however old, and so do the
// transfer and its entries. Unused keys are deleted an hour after they expired.
func TestCleanupKeepsUsedKeys(t *testing.T) {
	s := start(t)
	from, to := s.open("u_a", "10"), s.open("u_b", "0")
	done, refused := s.request("u_a", from, to, "1"), s.request("u_a", from, to, "1000")
	for _, r := range []transfer.Request{done, refused} {
		if _, err := s.Transfer(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.WriteLedger(t.Context()); err != nil {
		t.Fatal(err)
	}
	running, unused, old := s.key("u_a"), s.key("u_a"), s.key("u_a")
	s.exec(`UPDATE integration.idempotency_key SET expires_at = now() - interval '2 years', created_at = now() - interval '2 years' WHERE scope = 'transfer'`)
	s.exec(`UPDATE integration.idempotency_key SET status = 'IN_PROGRESS', request_hash = sha256('x'), started_at = now() WHERE idempotency_key = $1`, running)
	s.exec(`UPDATE integration.idempotency_key SET expires_at = now() - interval '59 minutes' WHERE idempotency_key = $1`, unused)
	s.exec(`UPDATE integration.idempotency_key SET expires_at = now() - interval '61 minutes' WHERE idempotency_key = $1`, old)
	if n := s.clean(keep); n != 1 {
		t.Errorf("%d rows were deleted, want the one key that expired unused an hour ago", n)
	}
	for what, key := range map[string]string{"SUCCEEDED": done.Key, "FAILED": refused.Key, "IN_PROGRESS": running, "unused for 59 minutes": unused} {
		if s.one(`SELECT count(*) FROM integration.idempotency_key WHERE idempotency_key = $1`, key) != "1" {
			t.Errorf("the key that is %s is gone", what)
		}
	}
	s.want("old unused keys", `SELECT count(*) FROM integration.idempotency_key WHERE expires_at BETWEEN now() - interval '1 day' AND now() - interval '60 minutes'`, "0")
	s.want("transfers", `SELECT count(*) FROM core.transfer`, "2")
	s.want("entries", `SELECT count(*) FROM core.ledger`, "4")
	if a, err := s.Transfer(t.Context(), done); err != nil || !a.Replayed || a.Status != transfer.Succeeded {
		t.Errorf("the same request again: %+v, %v", a, err)
	}
}

// Keys for opening accounts are kept until they expire, and then deleted.
func TestCleanupOfOpeningKeys(t *testing.T) {
	s := start(t)
	s.open("u_a", "0")
	s.open("u_b", "0")
	s.exec(`UPDATE integration.idempotency_key SET expires_at = now() + interval '1 minute'`)
	s.exec(`UPDATE integration.idempotency_key SET expires_at = now() - interval '1 second' WHERE idempotency_key_id = (SELECT min(idempotency_key_id) FROM integration.idempotency_key)`)
	if n := s.clean(keep); n != 1 {
		t.Errorf("%d keys were deleted, want the one that expired", n)
	}
	s.want("keys", `SELECT count(*) FROM integration.idempotency_key WHERE expires_at > now()`, "1")
}

// Cleanup runs in short steps. It deletes old outbox events that were published and have
// arrived, and old processed events, and nothing else.
func TestCleanup(t *testing.T) {
	s := start(t)
	const id = `('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`
	event := func(from, to int, status, finished string) {
		s.exec(`INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, status, finished_at)
			SELECT `+id+`, 'k', 'TransferCompleted', '{}', now(), $3, now() - $4::interval FROM generate_series($1::int, $2) n`, from, to, status, finished)
	}
	event(1, 1500, "PUBLISHED", "7 days 1 minute")
	event(1501, 1600, "PUBLISHED", "6 days 23 hours")
	event(1601, 1700, "FAILED", "1 year")
	s.exec(`INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, created_at)
		SELECT ` + id + `, 'k', 'TransferCompleted', '{}', now(), now() - interval '1 year' FROM generate_series(1701, 1800) n`)
	event(1801, 1900, "PUBLISHED", "7 days 30 seconds") // not reconciled
	s.exec(`INSERT INTO integration.outbox_reconciled (consumer, up_to) VALUES ('settle', '01900000-0000-7000-8000-000000000708')`)
	s.exec(`INSERT INTO integration.processed_events SELECT ` + id + `, now() - CASE WHEN n <= 1500 THEN interval '31 days' ELSE interval '29 days' END FROM generate_series(1, 1600) n`)
	if n, more, err := s.Cleanup(t.Context(), keep); err != nil || n != 2000 || !more {
		t.Errorf("the first step deleted %d, more %t, %v; want 1,000 of each and more", n, more, err)
	}
	if n := s.clean(keep); n != 1000 {
		t.Errorf("the later steps deleted %d, want 1,000", n)
	}
	s.want("PUBLISHED", `SELECT count(*) FROM integration.outbox_events WHERE status = 'PUBLISHED'`, "200")
	s.want("published long ago and reconciled", `SELECT count(*) FROM integration.outbox_events WHERE published_at < now() - interval '7 days' AND event_id <= '01900000-0000-7000-8000-000000000708'`, "0")
	s.want("FAILED", `SELECT count(*) FROM integration.outbox_events WHERE status = 'FAILED'`, "100")
	s.want("PENDING", `SELECT count(*) FROM integration.outbox_events WHERE status = 'PENDING'`, "100")
	s.want("processed", `SELECT count(*) FROM integration.processed_events`, "100")
	if n, err := s.Unreconciled(t.Context(), keep); err != nil || n != 100 {
		t.Errorf("%d rows wait for reconcile, %v; want 100", n, err)
	}
}

// While a user's keys are pseudonymised, whoever has the subject now transfers with a key:
// it stays that user's, and answers again.
func TestPseudonymise(t *testing.T) {
	s := start(t)
	s.open("u_old", "5")
	own, other := s.open("u_new", "5"), s.open("u_other", "0")
	theirs, key := s.key("ann"), s.key("ann")
	tx, err := s.pool.Begin(t.Context())
	kit.Must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM integration.idempotency_key WHERE idempotency_key = $1 FOR UPDATE`, theirs)
	kit.Must(t, err)
	ended := make(chan error, 1)
	go func() {
		more, running, err := s.Pseudonymise(t.Context(), "ann", "u_old", time.Now().Add(time.Hour))
		if more || running {
			t.Errorf("more keys are left: %v, and a transfer runs: %v; want neither", more, running)
		}
		ended <- err
	}()
	kit.Eventually(t, "it waits for the first key", func() bool {
		return s.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "1"
	})
	r := transfer.Request{Client: "ann", Key: key, Owner: "u_new", From: own, To: other, Amount: amount(t, "1")}
	first, err := s.Transfer(t.Context(), r)
	if err != nil || first.Status != "SUCCEEDED" {
		t.Fatalf("the new user's request is answered %+v, %v", first, err)
	}
	kit.Must(t, tx.Commit(t.Context()))
	kit.Must(t, <-ended)
	if again, err := s.Transfer(t.Context(), r); err != nil || string(again.Body) != string(first.Body) {
		t.Errorf("the new user's request is answered %s, %v; want %s again", again.Body, err, first.Body)
	}
	s.want("the old user's key", `SELECT client_id FROM integration.idempotency_key WHERE idempotency_key = '`+theirs+`'`, "u_old")
}
