package transfer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// The system's account may owe as much as one account may have. An opening beyond that is
// refused, opens nothing, and leaves its key unused.
func TestOpenBeyondTheLimit(t *testing.T) {
	s := start(t)
	s.open("u_rich", "999999999999999.9999")
	least := amount(t, "0.0001")
	o := transfer.Open{Client: "ops", Key: uuid.NewString(), Owner: "u_poor", Currency: "EUR", Balance: &least, Retention: time.Hour}
	for range 2 {
		if _, err := s.OpenAccount(t.Context(), o); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("SQLSTATE %q: %v, want ErrLimit", postgres.Code(err), err)
		}
	}
	if n := s.one(`SELECT count(*) FROM core.account WHERE owner_user_id = 'u_poor'`); n != "0" {
		t.Errorf("%s accounts were opened, want none", n)
	}
	o.Balance = nil
	if _, err := s.OpenAccount(t.Context(), o); err != nil {
		t.Errorf("the key is used up: %v", err)
	}
}

// A transfer of an account waits in the process while another of it runs. One whose time is
// up there never began TX1, so its key may be used again.
func TestTurnedAwayWhileItWaits(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	a := newArena(t, 12, "cache_statement", w.through)
	from, to := a.open("u_a", "10"), a.open("u_b", "0")
	release := make(chan struct{})
	defer close(release)
	stopped := make(chan struct{})
	w.plan(plan{text: tx1, before: func() bool { close(stopped); <-release; return false }})
	first := a.wish("u_a", from, to, "1")
	go func() { _, _ = a.ask(t.Context(), a.Store, first) }()
	<-stopped
	late := a.wish("u_a", from, to, "1")
	sql := `SELECT coalesce(status, 'unused') FROM integration.idempotency_key WHERE idempotency_key = $1`
	answer, err := a.ask(t.Context(), a.Store, late)
	if got := a.one(sql, late.key); got != "unused" || !errors.Is(err, transfer.ErrBusy) {
		t.Errorf("the late transfer got %+v, %v, and its key is %s; want ErrBusy and unused", answer, err, got)
	}
}

// An account is locked by something else, and gets more transfers than may run at once.
// The process itself ends or refuses each of them; none is left to the watchdog. On a busy
// machine a step may take longer than it may, so the best of a few tries counts.
func TestLockedAccountLeavesNothingInProgress(t *testing.T) {
	t.Parallel()
	const tries = 3
	var states string
	for range tries {
		if states = besideALockedAccount(t); states == "FAILED,unused" {
			return
		}
		t.Logf("the keys are %s", states)
	}
	t.Errorf("the keys are %s, want FAILED,unused", states)
}

// besideALockedAccount returns the states of the keys of 16 transfers of a locked account
// when all are answered.
func besideALockedAccount(t *testing.T) (states string) {
	a := newArena(t, 12, "cache_statement", nil)
	a.hurryLocks()
	from, to := a.open("u_a", "100"), a.open("u_b", "0")
	tx, err := a.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, from); err != nil {
		t.Fatal(err)
	}
	// The first transfer does not get the lock in time; meanwhile the time of all others is
	// up.
	var asked sync.WaitGroup
	for range 16 {
		w := a.wish("u_a", from, to, "1")
		asked.Go(func() { _, _ = a.ask(t.Context(), a.Store, w) })
	}
	asked.Wait()
	return a.one(`SELECT string_agg(DISTINCT coalesce(status, 'unused'), ',' ORDER BY coalesce(status, 'unused')) FROM integration.idempotency_key WHERE scope = 'transfer'`)
}

// A caller hangs up while their key is taken. The transfer is completed all the same:
// otherwise the key would stay in progress until the watchdog ends it.
func TestHangUpWhileTheKeyIsTaken(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	a := newArena(t, 12, "cache_statement", w.through)
	from, to := a.open("u_a", "10"), a.open("u_b", "0")
	ctx, hangUp := context.WithCancel(t.Context())
	w.plan(plan{text: taking, after: func() bool { hangUp(); return true }})
	wish := a.wish("u_a", from, to, "1")
	if answer, err := a.ask(ctx, a.Store, wish); err != nil || answer.Status != transfer.Succeeded {
		t.Errorf("the transfer was answered %+v, %v; want SUCCEEDED", answer, err)
	}
	// A caller who is gone before the transfer begins changes nothing.
	wish = a.wish("u_a", from, to, "1")
	if answer, err := a.ask(ctx, a.Store, wish); err == nil {
		t.Errorf("a caller who was gone got %+v, want an error", answer)
	}
	if got := a.one(`SELECT coalesce(status, 'unused') FROM integration.idempotency_key WHERE idempotency_key = $1`, wish.key); got != "unused" {
		t.Errorf("the key is %s, want unused", got)
	}
}

// A transfer without an owner may use no account.
func TestOwnerIsNeeded(t *testing.T) {
	s := start(t)
	from, to := s.open("u_a", "10"), s.open("u_b", "0")
	key, err := s.IssueKey(t.Context(), "u_b")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Transfer(t.Context(), transfer.Request{Client: "u_b", Key: key.Key, From: from, To: to, Amount: amount(t, "1")})
	if !errors.Is(err, transfer.ErrAccount) {
		t.Errorf("without an owner: %+v, %v; want ErrAccount", answer, err)
	}
}
