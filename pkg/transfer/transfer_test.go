package transfer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestTransfer(t *testing.T) {
	s := start(t)
	a, b := s.open("u_a", "100.5"), s.open("u_b", "0")
	request := s.request("u_a", a, b, "0.5")
	first, err := s.Transfer(t.Context(), request)
	if err != nil || first.Status != transfer.Succeeded || first.Replayed || !strings.HasPrefix(string(first.Body), `{"transferId":"t_`) {
		t.Fatalf("the first transfer was answered %+v %s, %v; want SUCCEEDED", first, first.Body, err)
	}
	request.Amount = amount(t, "0.50")
	again, err := s.Transfer(t.Context(), request)
	if err != nil || !again.Replayed || string(again.Body) != string(first.Body) {
		t.Errorf("sent again it was answered %+v %s, %v; want %s", again, again.Body, err, first.Body)
	}
	request.Amount = amount(t, "0.51")
	if _, err := s.Transfer(t.Context(), request); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("another amount with the same key: %v, want ErrReused", err)
	}
	if s.balance(a) != "100" || s.balance(b) != "0.5" {
		t.Errorf("the balances are %s and %s, want 100 and 0.5", s.balance(a), s.balance(b))
	}
	if got := s.one(`SELECT sum(balance)::text FROM core.account`); got != "0.0000" {
		t.Errorf("the sum of all balances is %s, want 0.0000", got)
	}
	if got := s.one(`SELECT count(*) FROM integration.outbox_events WHERE ` + kit.OtherTime("event_id", "occurred_at", "occurred_at")); got != "0" {
		t.Errorf("the ids of %s events are not of the time of their transfer", got)
	}
	if got := s.one(`SELECT string_agg(event_type || ' ' || (payload->>'amount'), ',' ORDER BY occurred_at) FROM integration.outbox_events`); got != "TransferCompleted 100.5000,TransferCompleted 0.5000" {
		t.Error(got)
	}
}

func TestFailedIsForGood(t *testing.T) {
	s := start(t)
	a, b := s.open("u_a", "1"), s.open("u_b", "0")
	request := s.request("u_a", a, b, "1.0001")
	for range 2 {
		answer, err := s.Transfer(t.Context(), request)
		if err != nil || answer.Status != transfer.Failed || string(answer.Body) != `{"status":"FAILED","errorCode":"INSUFFICIENT_BALANCE"}` {
			t.Fatalf("answered %+v %s, %v; want INSUFFICIENT_BALANCE", answer, answer.Body, err)
		}
		s.open("u_a", "5")
	}
	if s.balance(a) != "1" || s.balance(b) != "0" {
		t.Errorf("the balances are %s and %s, want 1 and 0", s.balance(a), s.balance(b))
	}
}

func TestKeys(t *testing.T) {
	s := start(t)
	a, b := s.open("u_a", "10"), s.open("u_b", "0")
	stolen := s.request("u_a", a, b, "1")
	stolen.Client = "u_b"
	unknown := s.request("u_a", a, b, "1")
	unknown.Key = "made up"
	expired := s.request("u_a", a, b, "1")
	if _, err := s.pool.Exec(t.Context(), `UPDATE integration.idempotency_key SET expires_at = now() WHERE idempotency_key = $1`, expired.Key); err != nil {
		t.Fatal(err)
	}
	notMine := s.request("u_b", a, b, "1")
	nobody := s.request("u_a", a, 1<<40, "1")
	same := s.request("u_a", a, a, "1")
	dollars := s.request("u_a", a, b, "1")
	if _, err := s.pool.Exec(t.Context(), `UPDATE core.account SET currency = 'USD' WHERE account_id = $1`, b); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		request transfer.Request
		want    error
	}{
		"stolen": {stolen, transfer.ErrKey}, "unknown": {unknown, transfer.ErrKey}, "expired": {expired, transfer.ErrKey},
		"not mine": {notMine, transfer.ErrAccount}, "nobody": {nobody, transfer.ErrAccount}, "same": {same, transfer.ErrSame},
		"dollars": {dollars, transfer.ErrCurrencies},
	} {
		if answer, err := s.Transfer(t.Context(), c.request); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v; want %v", name, answer, err, c.want)
		}
	}
	if s.balance(a) != "10" || s.balance(b) != "0" {
		t.Errorf("the balances are %s and %s, want 10 and 0", s.balance(a), s.balance(b))
	}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "0.0000", "-1", "0.00001", "1e3", "1E3", "10000000000000000", "1000000000000000", "NaN", "", "01", "1.", ".5", "+1", "1_0", `"1"`} {
		if _, err := transfer.ParseAmount(text); fault.Of(err) != fault.Invalid {
			t.Errorf("%q: %v, want Invalid", text, err)
		}
	}
	for text, want := range map[string]string{"1": "1", "10000.0": "10000", "0.0001": "0.0001", "1.50": "1.5", "999999999999999.9999": "999999999999999.9999", "123456789012345.6789": "123456789012345.6789", "1.00000000": "1"} {
		if a, err := transfer.ParseAmount(text); err != nil || a.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, a, err, want)
		}
	}
}

// However many transfers run at once, no money is made or lost, and no user owes any.
func TestNoMoneyIsMadeOrLost(t *testing.T) {
	s := start(t)
	const players, clients, each = 6, 16, 20
	var accounts []int64
	for i := range players {
		accounts = append(accounts, s.open(fmt.Sprintf("u_%d", i), "100"))
	}
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			for range each {
				from, to := random.IntN(players), random.IntN(players)
				if from == to {
					continue
				}
				request := s.request(fmt.Sprintf("u_%d", from), accounts[from], accounts[to], fmt.Sprintf("%d.%04d", random.IntN(60), 1+random.IntN(9999)))
				for range 1 + random.IntN(2) {
					if _, err := s.Transfer(t.Context(), request); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(5 * time.Millisecond):
		}
		if got := s.one(`SELECT sum(balance)::text || ' ' || min(balance) FILTER (WHERE owner_user_id IS NOT NULL) FROM core.account`); !strings.HasPrefix(got, "0.0000 ") || strings.Contains(got, "-") {
			t.Fatalf("a snapshot has sum and least balance %s, want 0.0000 and none negative", got)
		}
	}
	for {
		report, err := s.WriteLedger(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !report.More {
			break
		}
	}
	if got := s.one(`SELECT count(*)::text FROM core.account a WHERE a.balance <>
		(SELECT coalesce(sum(CASE side WHEN 'CREDIT' THEN amount ELSE -amount END), 0) FROM core.ledger l WHERE l.account_id = a.account_id)`); got != "0" {
		t.Errorf("%s accounts differ from their ledger", got)
	}
}

func TestReversal(t *testing.T) {
	s := start(t)
	a, b := s.open("u_a", "10"), s.open("u_b", "0")
	sent, err := s.Transfer(t.Context(), s.request("u_a", a, b, "4"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Split(string(sent.Body), `"`)[3]
	operator := func() transfer.Request { return transfer.Request{Client: "ops", Key: s.key("ops")} }
	request := operator()
	for range 2 {
		if back, err := s.Reverse(t.Context(), request, id); err != nil || back.Status != transfer.Succeeded {
			t.Fatalf("the reversal was answered %+v %s, %v; want SUCCEEDED", back, back.Body, err)
		}
	}
	if again, err := s.Reverse(t.Context(), operator(), id); err != nil || !strings.Contains(string(again.Body), "ALREADY_REVERSED") {
		t.Errorf("a second reversal was answered %s, %v; want ALREADY_REVERSED", again.Body, err)
	}
	if s.balance(a) != "10" || s.balance(b) != "0" {
		t.Errorf("the balances are %s and %s, want 10 and 0", s.balance(a), s.balance(b))
	}
	list, next, err := s.Transfers(t.Context(), a, "", 2)
	if err != nil || len(list) != 2 || next == "" || list[0].Reverses != id || list[0].Kind != transfer.Reversal {
		t.Errorf("the first page is %+v, next %q, %v; want the reversal, the transfer and more", list, next, err)
	}
	if list, next, err = s.Transfers(t.Context(), a, next, 2); err != nil || len(list) != 1 || next != "" || list[0].Kind != transfer.Opening {
		t.Errorf("the last page is %+v, next %q, %v; want the opening", list, next, err)
	}
}

// The watchdog races with a slow TX1: the one that locks the key first decides, and the
// other accepts it.
func TestWatchdogAgainstTX1(t *testing.T) {
	s := start(t)
	a, b := s.open("u_a", "10"), s.open("u_b", "0")
	request := s.request("u_a", a, b, "1")
	// TX1 locks its key, then waits for the account.
	holder, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, a); err != nil {
		t.Fatal(err)
	}
	answers := make(chan transfer.Answer, 1)
	go func() {
		answer, err := s.Transfer(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	kit.Eventually(t, "TX1 waits", func() bool {
		return s.one(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) != "0"
	})
	if asked, err := s.Transfer(t.Context(), request); err != nil || asked.Status != transfer.InProgress {
		t.Errorf("meanwhile the same request was answered %+v, %v; want IN_PROGRESS", asked, err)
	}
	if report, _, err := s.EndOrphans(t.Context(), 0); err != nil || report.Dead != 0 {
		t.Errorf("the watchdog ended a key that TX1 holds: %+v, %v", report, err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answer := <-answers; answer.Status != transfer.Succeeded {
		t.Errorf("TX1 was answered %+v %s, want SUCCEEDED", answer, answer.Body)
	}
	if s.balance(b) != "1" {
		t.Errorf("the balance is %s, want 1", s.balance(b))
	}
}

// Taking a key does not wait for the disk; whatever its connection does afterwards does.
func TestOnlyTakingAKeyCommitsQuickly(t *testing.T) {
	s := start(t)
	config := s.pool.Config()
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.Store, s.pool = transfer.NewStore(pool), pool
	answer, err := s.Transfer(t.Context(), s.request("anna", s.open("anna", "10"), s.open("ben", "0"), "3"))
	if setting := s.one(`SHOW synchronous_commit`); err != nil || answer.Status != transfer.Succeeded || setting != "on" {
		t.Errorf("%+v, %v, and then synchronous_commit is %s", answer, err, setting)
	}
}
