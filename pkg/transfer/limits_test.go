package transfer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// The system's account may owe as much as one account may have. What is beyond that is
// refused, opens nothing, and leaves the key unused.
func TestOpenBeyondTheLimit(t *testing.T) {
	s := start(t)
	s.open("u_rich", "999999999999999.9999")
	least := amount(t, "0.0001")
	o := transfer.Open{Client: "ops", Key: uuid.NewString(), Owner: "u_poor", Currency: "EUR", Balance: &least, Retention: time.Hour}
	for range 2 {
		if _, err := s.OpenAccount(t.Context(), o); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("SQLSTATE %q: %v", postgres.Code(err), err)
		}
	}
	if n := s.one(`SELECT count(*) FROM core.account WHERE owner_user_id = 'u_poor'`); n != "0" {
		t.Errorf("%s accounts opened", n)
	}
	o.Balance = nil
	if _, err := s.OpenAccount(t.Context(), o); err != nil {
		t.Errorf("the key is used up: %v", err)
	}
}

// More transfers of one account than may run wait in the process, for as long as a TX1
// may take. One whose time is up there never began TX1, so its key may be used again.
func TestTurnedAwayAtTheGate(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	a := newArena(t, 12, "cache_statement", w.through)
	from, to := a.open("u_a", "10"), a.open("u_b", "0")
	release := make(chan struct{})
	defer close(release)
	for range hotLimit { // its places are taken
		stopped := make(chan struct{})
		w.plan(plan{text: tx1, before: func() bool { close(stopped); <-release; return false }})
		w.plan(plan{text: asking, before: func() bool { <-release; return false }}) // and for longer
		first := a.wish("u_a", from, to, "1")
		go func() { _, _ = a.ask(t.Context(), a.Store, first) }()
		<-stopped
	}
	late := a.wish("u_a", from, to, "1")
	sql := `SELECT coalesce(status, 'unused') FROM integration.idempotency_key WHERE idempotency_key = $1`
	answer, err := a.ask(t.Context(), a.Store, late)
	if got := a.one(sql, late.key); got != "unused" || !errors.Is(err, transfer.ErrBusy) {
		t.Errorf("%+v, %v: the key is %s", answer, err, got)
	}
}
