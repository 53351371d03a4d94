package transfer_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// atOnce sends wishes at once and returns the words of their answers. Most of them share
// batches.
func (a *arena) atOnce(wishes []wish) []string {
	a.t.Helper()
	a.SetStep(kit.Patience)
	words := make([]string, len(wishes))
	var group sync.WaitGroup
	for i, w := range wishes {
		group.Go(func() {
			answer, err := a.ask(a.t.Context(), a.Store, w)
			if words[i] = word(answer); err != nil {
				words[i] = kind(err)
			}
		})
	}
	group.Wait()
	return words
}

// count returns how often each word is there.
func count(words []string) map[string]int {
	counts := map[string]int{}
	for _, w := range words {
		counts[w]++
	}
	return counts
}

// pairs opens 2n accounts and returns a wish between the accounts of each pair.
func (a *arena) pairs(n int) (wishes []wish) {
	a.t.Helper()
	for i := range n {
		owner := fmt.Sprint("u_", i)
		wishes = append(wishes, a.wish(owner, a.open(owner, "10"), a.open("u_to", "0"), "1"))
	}
	return wishes
}

// Transfers at once share commits, and each has its transfer, answer and event.
func TestTransfersShareCommits(t *testing.T) {
	t.Parallel()
	a := newArena(t, 8, "cache_statement", nil)
	const n = 100
	if got := count(a.atOnce(a.pairs(n))); got[transfer.Succeeded] != n {
		t.Errorf("the answers are %v, want %d SUCCEEDED", got, n)
	}
	if commits := a.one(`SELECT count(DISTINCT xmin::text) < 60 FROM core.transfer WHERE kind = 'TRANSFER'`); commits != "true" {
		t.Errorf("%d transfers took 60 commits or more, want them to share some", n)
	}
	a.mustBeRight()
}

// Plans are kept for long, and most are made while tables are small or hold other rows:
// none reads a whole table later, by itself or through an index.
func TestTransfersReadNoWholeTable(t *testing.T) {
	t.Parallel()
	a := newArena(t, 1, "cache_statement", nil)
	const transfers, others = 20, 5_000 // after five, a plan is kept
	used := fmt.Sprint(`INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, expires_at, status, request_hash, started_at, completed_at, response_snapshot)
		SELECT 'ops', 'open-account', gen_random_uuid(), now() + interval '1 day', 'SUCCEEDED', sha256(''), now(), now(), '{}' FROM generate_series(1, `, others, `)`)
	unused := fmt.Sprint(`INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, expires_at)
		SELECT 'u_other', 'transfer', gen_random_uuid(), now() + interval '1 day' FROM generate_series(1, `, others, `)`)
	do := func(statements ...string) {
		for _, sql := range statements {
			_, err := a.pool.Exec(t.Context(), sql)
			kit.Must(t, err)
		}
	}
	do("ALTER TABLE integration.idempotency_key SET (autovacuum_enabled = off)", used, "VACUUM ANALYZE", unused)
	wishes := a.pairs(transfers)
	const read = `SELECT sum(seq_scan)::bigint, sum(idx_tup_fetch)::bigint FROM pg_stat_user_tables
		WHERE (schemaname, relname) IN (('integration', 'idempotency_key'), ('core', 'account'), ('core', 'transfer'))`
	counted := func() (scans, rows int64) {
		// A connection's counters are there once it has ended.
		a.victims.Reset()
		kit.Eventually(t, "the store's connections end", func() bool {
			return a.one(`SELECT count(*) FROM pg_stat_activity WHERE application_name = '`+victim+`' AND datname = current_database()`) == "0"
		})
		kit.Must(t, a.pool.QueryRow(t.Context(), read).Scan(&scans, &rows))
		return scans, rows
	}
	scansBefore, rowsBefore := counted()
	for _, w := range wishes {
		answer, err := a.ask(t.Context(), a.Store, w)
		if err != nil || answer.Status != transfer.Succeeded {
			t.Fatalf("a transfer: %+v, %v", answer, err)
		}
	}
	scans, rows := counted()
	if each := (rows - rowsBefore) / transfers; scans != scansBefore || each == 0 || each > 20 {
		t.Errorf("%d transfers read %d whole tables, and each %d rows by index, want none and at most 20", transfers, scans-scansBefore, each)
	}
}

// Of many transfers from one account at once, as many succeed as it has money for: those
// of one batch see each other's.
func TestOneAccountAtOnce(t *testing.T) {
	t.Parallel()
	a := newArena(t, 8, "cache_statement", nil)
	from, to := a.open("u_a", "10"), a.open("u_b", "0")
	var wishes []wish
	for range 64 {
		wishes = append(wishes, a.wish("u_a", from, to, "1"))
	}
	if got := count(a.atOnce(wishes)); got[transfer.Succeeded] != 10 || got["INSUFFICIENT_BALANCE"] != 54 {
		t.Errorf("the answers are %v, want 10 SUCCEEDED and 54 INSUFFICIENT_BALANCE", got)
	}
	a.mustBeRight()
}

// Of many reversals of one transfer at once, one succeeds.
func TestReversalsAtOnce(t *testing.T) {
	t.Parallel()
	a := newArena(t, 8, "cache_statement", nil)
	from, to := a.open("u_a", "10"), a.open("u_b", "100")
	sent, err := a.ask(t.Context(), a.Store, a.wish("u_a", from, to, "4"))
	kit.Must(t, err)
	var wishes []wish
	for range 32 {
		w := a.wish("ops", 0, 0, "1")
		w.owner, w.reverses = "", strings.Split(string(sent.Body), `"`)[3]
		wishes = append(wishes, w)
	}
	if got := count(a.atOnce(wishes)); got[transfer.Succeeded] != 1 || got["ALREADY_REVERSED"] != 31 {
		t.Errorf("the answers are %v, want one SUCCEEDED and 31 ALREADY_REVERSED", got)
	}
	a.mustBeRight()
}

// A batch whose first key was ended by the watchdog, and whose others are refused or
// carried out: each gets its own answer.
func TestBatchWithAnEndedKey(t *testing.T) {
	t.Parallel()
	a := newArena(t, 2, "cache_statement", nil)
	from, to := a.open("u_a", "10"), a.open("u_b", "0")
	got := a.one(`
		WITH keys AS (
			INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, status, request_hash, attempt, started_at, completed_at, error_code, response_snapshot, expires_at)
			SELECT 'u_a', 'transfer', i::text, CASE WHEN ended THEN 'FAILED' ELSE 'IN_PROGRESS' END, sha256(''), gen_random_uuid(), now(),
				CASE WHEN ended THEN now() END, CASE WHEN ended THEN 'TIMEOUT' END, CASE WHEN ended THEN '{"errorCode":"TIMEOUT"}' END, now()
			FROM (VALUES (1, true), (2, false), (3, false)) v (i, ended) RETURNING idempotency_key_id, attempt
		) SELECT count(*) FROM keys`)
	if got != "3" {
		t.Fatalf("%s keys were made, want 3", got)
	}
	got = a.one(`
		SELECT string_agg(m.ended_as || ' ' || m.snapshot, ', ' ORDER BY m.nth)
		FROM (SELECT array_agg(idempotency_key_id ORDER BY idempotency_key_id) AS ids, array_agg(attempt ORDER BY idempotency_key_id) AS attempts
			FROM integration.idempotency_key WHERE scope = 'transfer') k,
		LATERAL `+tx1+`(k.ids, k.attempts, k.attempts, ARRAY['t_1', 't_2', 't_3'], array_fill($1::bigint, ARRAY[3]), array_fill($2::bigint, ARRAY[3]),
			ARRAY[1, 11, 2]::numeric[], array_fill('TRANSFER'::text, ARRAY[3]), array_fill(NULL::uuid, ARRAY[3]), array_fill(''::text, ARRAY[3])) m`, from, to)
	want := `FAILED {"errorCode":"TIMEOUT"}, FAILED {"status":"FAILED","errorCode":"INSUFFICIENT_BALANCE"}, SUCCEEDED {"transferId":"t_3","status":"SUCCEEDED"}`
	if got != want || a.balance(from) != "8" || a.balance(to) != "2" {
		t.Errorf("the answers are\n%s\nwant\n%s; the balances are %s and %s, want 8 and 2", got, want, a.balance(from), a.balance(to))
	}
}

// One transfer among 63 good ones cannot be stored: it fails alone.
func TestPoisonedTransfer(t *testing.T) {
	t.Parallel()
	a := newArena(t, 8, "cache_statement", nil)
	_, err := a.pool.Exec(t.Context(), `ALTER TABLE core.transfer ADD CONSTRAINT poison CHECK (amount <> 6.66)`)
	kit.Must(t, err)
	wishes := a.pairs(64)
	wishes[40].amount = amount(t, "6.66")
	for i, got := range a.atOnce(wishes) {
		want := transfer.Succeeded
		if i == 40 {
			want = transfer.RolledBack
		}
		if got != want {
			t.Errorf("transfer %d was answered %s, want %s", i, got, want)
		}
	}
	a.mustBeRight()
}

// Another process holds one account's lock for long: the transfers of others, even of the
// same batch, do not wait for it.
func TestBatchWithALockedAccount(t *testing.T) {
	t.Parallel()
	a := newArena(t, 8, "cache_statement", nil)
	a.SetStep(kit.Patience)
	wishes := a.pairs(64)
	release := a.hold(`SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, wishes[40].from)
	var locked, others sync.WaitGroup
	for i, w := range wishes {
		if i == 40 {
			locked.Go(func() { _, _ = a.ask(t.Context(), a.Store, w) }) // it may be freed in time or not
			continue
		}
		others.Go(func() { a.mustBe(t, a.Store, w, transfer.Succeeded) })
	}
	others.Wait()
	release()
	locked.Wait()
	a.mustBeRight()
}
