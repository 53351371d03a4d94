package transfer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// tx1 is the database function that runs TX1, and taking the one that takes a key.
var tx1, taking = called("core.move_money"), called("integration.take_key")

// givingUp is a part of the statement that ends a TX1 which may have failed, and asking
// one of the statement that reads how TX1 ended.
const (
	givingUp = "SET status = 'FAILED', error_code"
	asking   = "SELECT status, response_snapshot FROM integration.idempotency_key"
)

const cuts = 24

func no() bool { return false }

// The connection breaks between TX1's commit and its answer, before TX1 reaches Postgres,
// and anywhere in between, each many times. Nothing is done twice, and a request that is
// sent again is answered with what happened.
func TestConnectionCutAtTheCommit(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			a := newArena(t, 4, mode, w.through)
			a.SetStep(kit.Patience)
			from, to := a.open("u_a", fmt.Sprint(cuts)), a.open("u_b", "0")
			for i := range cuts {
				// The second of three amounts is too much: its refusal is lost, too.
				text := []string{"0.0001", "1000", "0.5"}[i%3]
				a.cutAfter(w, a.wish("u_a", from, to, text), i%2 == 0)
				a.cutBefore(w, a.wish("u_a", from, to, text), i%2 == 0)
				if i%4 == 0 {
					a.cutDuring(w, a.wish("u_a", from, to, text))
				}
			}
			if n := w.planned(); n != 0 {
				t.Errorf("%d planned cuts were not made", n)
			}
			a.mustBeRight()
			t.Log(a.count)
		})
	}
}

// cutAfter loses the answer of TX1. The store asks how TX1 ended; with askingToo that
// answer is lost as well, and the caller must ask.
func (a *arena) cutAfter(w *wire, sent wish, askingToo bool) {
	a.t.Helper()
	want := transfer.Succeeded
	if sent.amount.String() == "1000" {
		want = transfer.Failed
	}
	w.plan(plan{text: tx1, after: no, partly: rand.N(2) == 0})
	if askingToo {
		w.plan(plan{text: asking, after: no})
		if _, err := a.ask(a.t.Context(), a.Store, sent); kind(err) != "outcome_unknown" {
			a.t.Errorf("with both answers lost the error is %v, want outcome_unknown", err)
		}
	} else if answer, err := a.ask(a.t.Context(), a.Store, sent); err != nil || answer.Status != want || answer.Replayed {
		a.t.Errorf("with the answer of TX1 lost: %+v %s, %v; want %s", answer, answer.Body, err, want)
	}
	if report, _, err := a.calm.EndOrphans(a.t.Context(), 0); err != nil || report.Dead != 0 {
		a.t.Errorf("the watchdog ended a committed request: %+v, %v", report, err)
	}
	a.mustBe(a.t, a.Store, sent, want)
}

// cutBefore loses TX1 itself. The store ends the key, so that TX1 can move nothing any
// more; with endingToo that is lost as well, and the watchdog must end the key.
func (a *arena) cutBefore(w *wire, sent wish, endingToo bool) {
	a.t.Helper()
	w.plan(plan{text: tx1, before: no})
	orphans := 0
	if endingToo {
		orphans = 1
		w.plan(plan{text: givingUp, before: no})
		if _, err := a.ask(a.t.Context(), a.Store, sent); kind(err) != "outcome_unknown" {
			a.t.Errorf("with TX1 and its end lost the error is %v, want outcome_unknown", err)
		}
		a.mustBe(a.t, a.Store, sent, transfer.InProgress)
	} else if answer, err := a.ask(a.t.Context(), a.Store, sent); err != nil || word(answer) != transfer.RolledBack || answer.Replayed {
		a.t.Errorf("with TX1 lost: %+v %s, %v; want %s", answer, answer.Body, err, transfer.RolledBack)
	}
	if report, _, err := a.calm.EndOrphans(a.t.Context(), time.Hour); err != nil || report.Dead != 0 {
		a.t.Errorf("within its patience the watchdog reported %+v, %v", report, err)
	}
	if report, _, err := a.calm.EndOrphans(a.t.Context(), 0); err != nil || report.Dead != orphans {
		a.t.Errorf("the watchdog reported %+v, %v; want %d dead", report, err, orphans)
	}
	a.mustBe(a.t, a.Store, sent, transfer.Failed)
}

// cutDuring breaks the connection while TX1 is on its way to Postgres, which may run it
// or not.
func (a *arena) cutDuring(w *wire, sent wish) {
	a.t.Helper()
	cut := make(chan struct{})
	w.plan(plan{text: tx1, before: func() bool {
		go func() {
			defer close(cut)
			w.cut()
		}()
		return true
	}})
	_, _ = a.ask(a.t.Context(), a.Store, sent)
	select {
	case <-cut: // or a late cut would meet a later request
	case <-time.After(kit.Patience):
		a.t.Fatal("TX1 was not sent, or its connection not cut")
	}
	kit.Eventually(a.t, "it ends", func() bool {
		_, _, err := a.calm.EndOrphans(a.t.Context(), 0)
		answer, askErr := a.ask(a.t.Context(), a.Store, sent)
		return err == nil && askErr == nil && answer.Status != transfer.InProgress
	})
}

// The answer of transaction A is lost, or the statement itself. The key is unused again,
// and the same request succeeds at once, without the watchdog.
func TestAnswerOfTakingLost(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			a := newArena(t, 4, mode, w.through)
			from, to := a.open("u_a", "10"), a.open("u_b", "0")
			for _, p := range []plan{{text: taking, after: no}, {text: taking, after: no, partly: true}, {text: taking, before: no}} {
				w.plan(p)
				sent := a.wish("u_a", from, to, "1")
				if _, err := a.ask(t.Context(), a.Store, sent); fault.Of(err) != fault.Unavailable {
					t.Errorf("the answer lost: %v, want fault.Unavailable", err)
				}
				if answer, err := a.ask(t.Context(), a.Store, sent); err != nil || answer.Status != transfer.Succeeded || answer.Replayed {
					t.Errorf("the same request again: %+v, %v; want SUCCEEDED", answer, err)
				}
			}
			// The key that a repeated request took in vain is the first one's.
			sent, held, release, first := a.wish("u_a", from, to, "1"), make(chan bool), make(chan bool), make(chan transfer.Answer, 1)
			w.plan(plan{text: tx1, before: func() bool { close(held); <-release; return true }})
			go func() {
				answer, err := a.ask(t.Context(), a.Store, sent)
				if err != nil {
					t.Error(err)
				}
				first <- answer
			}()
			<-held
			w.plan(plan{text: taking, after: no})
			if _, err := a.ask(t.Context(), a.Store, sent); fault.Of(err) != fault.Unavailable {
				t.Errorf("the answer to a repeated request lost: %v, want fault.Unavailable", err)
			}
			close(release)
			if answer := <-first; answer.Status != transfer.Succeeded {
				t.Errorf("the first request ended %+v %s, want SUCCEEDED", answer, answer.Body)
			}
			if n := w.planned(); n != 0 {
				t.Errorf("%d answers were not lost", n)
			}
			a.mustBeRight()
		})
	}
}

// A caller's process vanishes while its TX1 waits for an account: the key is unlocked
// again within a bounded time, whether or not the account is ever unlocked. The server does
// not notice: in the mode exec this login has it look for no client.
func TestVanishedInTheMiddle(t *testing.T) {
	t.Parallel()
	together(t, map[string]string{"its account is freed": transfer.Succeeded, "its account is held": transfer.Failed}, func(t *testing.T, want string) {
		w := newWire(t)
		a := newArena(t, 4, "exec", w.through)
		a.hurryLocks()
		from, to := a.open("u_a", "10"), a.open("u_b", "0")
		sent := a.wish("u_a", from, to, "1")
		release := a.hold(`SELECT FROM core.account WHERE account_id = $1 FOR UPDATE`, from)
		done := make(chan error, 1)
		go func() { _, err := a.ask(t.Context(), a.Store, sent); done <- err }()
		kit.Eventually(t, "TX1 waits", func() bool { return a.waiting() == "1" })
		w.cut()
		if err := <-done; kind(err) != "outcome_unknown" {
			t.Errorf("after the cut the error is %v, want outcome_unknown", err)
		}
		if want == transfer.Succeeded {
			release()
		}
		begun := time.Now()
		// That TX1 is over when the key is unlocked.
		if _, err := a.pool.Exec(t.Context(), `SELECT FROM integration.idempotency_key WHERE idempotency_key = $1 FOR UPDATE`, sent.key); err != nil {
			t.Error(err)
		}
		freed := time.Since(begun)
		if freed > hurried+late {
			t.Errorf("the key was locked for %s, want %s at most", freed, hurried+late)
		}
		if _, _, err := a.calm.EndOrphans(t.Context(), 0); err != nil {
			t.Error(err)
		}
		a.mustBe(t, a.Store, sent, want)
		release()
		a.mustBeRight()
		t.Logf("the key was free after %s", freed.Round(time.Millisecond))
	})
}

// The commit itself is refused, after TX1 has returned its row: nobody is answered
// SUCCEEDED.
func TestRefusedAtTheCommit(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, 4, mode, nil)
			from, to := a.open("u_a", "10"), a.open("u_b", "0")
			if _, err := a.pool.Exec(t.Context(), `
				CREATE FUNCTION core.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused' USING ERRCODE = 'integrity_constraint_violation'; END $$;
				CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON core.transfer DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION core.refuse()`); err != nil {
				t.Fatal(err)
			}
			sent := a.wish("u_a", from, to, "1")
			for range 2 {
				if answer, err := a.ask(t.Context(), a.Store, sent); err != nil || word(answer) != transfer.RolledBack {
					t.Errorf("answered %s, %v; want %s", answer.Body, err, transfer.RolledBack)
				}
			}
			a.mustBeRight()
		})
	}
}
