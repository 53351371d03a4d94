package lease_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/lease"
)

// An attempt counts at its claim, so that a payload that kills its worker every time is
// given up.
func TestCrashAtTheLastAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(3))
	ids := f.insert(1)
	w := f.worker("w")
	for n := 1; n <= 3; n++ {
		claim := f.claim(w, 1)
		if c := claim.Rows[0]; c.Attempt != n || c.Exhausted {
			t.Fatalf("claim %d: %+v, want attempt %d", n, c, n)
		}
		if r := f.row(ids[0]); r.Attempts != n || r.Status != "IN_FLIGHT" {
			t.Fatalf("after claim %d the row is %+v, want IN_FLIGHT with as many attempts", n, r)
		}
		f.expire() // the worker died
	}
	claim := f.claim(w, 1)
	if c := claim.Rows[0]; !c.Exhausted || c.Attempt != 3 {
		t.Fatalf("claimed %+v, want it exhausted after 3 attempts", c)
	}
	if lost, err := claim.GiveUp(f.ctx, []lease.Failure{{ID: ids[0], Reason: lease.ErrExhausted}}); lost != 0 || err != nil {
		t.Fatal(lost, err)
	}
	r := f.row(ids[0])
	if r.Status != "FAILED" || !r.Finished || r.Held || r.LastError == nil || *r.LastError != lease.ErrExhausted.Error() {
		t.Fatalf("the row is %+v, want FAILED with %q", r, lease.ErrExhausted)
	}
	f.claim(w, 0)
}

// One row kills each worker that claims it. It alone is given up, and all others are
// finished, however many were claimed together with it.
func TestRowThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	for size, attempted := range map[int][]int{1: {1, 10}, 2: {3}, 3: {1, 10}, 200: {3}, 500: {1}} {
		for _, most := range attempted {
			t.Run(fmt.Sprintf("%d rows, %d attempts", size, most), func(t *testing.T) {
				t.Parallel()
				f := setup(t, batch(size), attempts(most))
				ids := f.insert(size)
				bad := ids[size/2]
				w := f.worker("w")
				deaths := 0
				// It takes nine deaths to halve 500 rows down to one; then attempts count.
				for bound := 12 + most; f.row(bad).Status != "FAILED"; {
					claim, err := w.Claim(f.ctx)
					if err != nil {
						t.Fatal(err)
					}
					switch at := slices.IndexFunc(claim.Rows, func(c lease.Claimed[string]) bool { return c.ID == bad }); {
					case len(claim.Rows) == 0:
						f.expire()
					case at >= 0 && claim.Rows[at].Exhausted:
						if len(claim.Rows) > 1 {
							t.Fatalf("the bad row is exhausted in a claim of %d rows, want it alone", len(claim.Rows))
						}
						if _, err := claim.GiveUp(f.ctx, failures([]uuid.UUID{bad})); err != nil {
							t.Fatal(err)
						}
					case at >= 0:
						if deaths++; deaths > bound {
							t.Fatalf("after %d deaths the bad row still takes %d others with it", deaths, len(claim.Rows)-1)
						}
					default:
						if lost, err := claim.Finish(f.ctx, idsOf(claim)); lost != 0 || err != nil {
							t.Fatalf("lost %d; %v", lost, err)
						}
					}
				}
				if n := f.count("PUBLISHED"); n != size-1 {
					t.Errorf("%d of %d good rows are finished", n, size-1)
				}
				if n := query[int](f, `SELECT count(*) FROM `+tableName+` WHERE attempt_count > 1 AND event_id <> $1`, bad); n != 0 {
					t.Errorf("deaths beside the bad row counted as attempts of %d good ones", n)
				}
			})
		}
	}
}

// A worker that always dies, whatever it holds, exhausts no row that it held together with
// others.
func TestWorkerThatCannotLive(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(3))
	f.insert(200)
	w := f.worker("w")
	for range 10 {
		if _, err := w.Claim(f.ctx); err != nil {
			t.Fatal(err)
		}
	}
	// Each of the ten claims took a part of the rows. Now all their leases end.
	f.expire()
	for range 4 {
		claim, err := w.Claim(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range claim.Rows {
			if row.Exhausted {
				t.Fatalf("row %s of %d is exhausted after it died with others", row.ID, len(claim.Rows))
			}
		}
		f.expire()
	}
}

func TestRetryAtTheLastAttemptFails(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(2))
	ids := f.insert(2)
	w := f.worker("w")
	f.exec(`UPDATE `+tableName+` SET attempt_count = 1 WHERE event_id = $1`, ids[0])
	dead, lost, err := f.claim(w, 2).Retry(f.ctx, failures(ids))
	if err != nil || dead != 1 || lost != 0 {
		t.Fatalf("dead %d lost %d; %v", dead, lost, err)
	}
	if r := f.row(ids[0]); r.Status != "FAILED" || r.Attempts != 2 || !r.Finished {
		t.Errorf("at the last attempt the row is %+v, want FAILED", r)
	}
	if r := f.row(ids[1]); r.Status != "PENDING" || r.Attempts != 1 || r.Held || r.LastError == nil || *r.LastError != errTest.Error() {
		t.Errorf("at the first attempt the row is %+v, want PENDING with the error", r)
	}
}

// A terminal row is never claimed again, whatever its times are.
func TestTerminalIsTerminal(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(2)
	w := f.worker("w")
	claim := f.claim(w, 2)
	if _, err := claim.Finish(f.ctx, ids[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := claim.GiveUp(f.ctx, failures(ids[1:])); err != nil {
		t.Fatal(err)
	}
	f.exec(`UPDATE ` + tableName + ` SET next_retry_at = now() - interval '1 h'`)
	f.claim(w, 0)
	for name, act := range zombies {
		if lost, err := act(f, claim, ids); lost != 2 || err != nil {
			t.Errorf("%s: lost %d, want 2; %v", name, lost, err)
		}
	}
}

// Returned rows use no attempt, however often: the broker may be away for a long time.
func TestReturnUsesNoAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(2))
	ids := f.insert(1)
	w := f.worker("w")
	for range 20 {
		claim := f.claim(w, 1)
		if claim.Rows[0].Attempt != 1 || claim.Rows[0].Exhausted {
			t.Fatalf("claimed %+v, want attempt 1", claim.Rows[0])
		}
		if lost, err := claim.Return(f.ctx, failures(ids)); lost != 0 || err != nil {
			t.Fatal(lost, err)
		}
		r := f.row(ids[0])
		if r.Status != "PENDING" || r.Attempts != 0 || r.Held {
			t.Fatalf("the returned row is %+v, want PENDING without an attempt", r)
		}
		if !r.NextRetry.After(query[time.Time](f, `SELECT now()`)) {
			t.Fatal("the row was returned without a backoff")
		}
		f.claim(w, 0)
		f.due()
	}
}

// After n failures the delay is min(cap, base·2^n) times 0.5 to 1.5.
func TestBackoffRange(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(100))
	const rows = 150
	ids := f.insert(rows)
	w := f.worker("w")
	for _, failed := range []int{0, 1, 2, 4, 6, 20, 60, 98} {
		f.exec(`UPDATE `+tableName+` SET attempt_count = $1, next_retry_at = now()`, failed)
		claim := f.claim(w, rows)
		before := query[time.Time](f, `SELECT clock_timestamp()`)
		dead, lost, err := claim.Retry(f.ctx, failures(ids))
		if err != nil || dead+lost != 0 {
			t.Fatalf("dead %d lost %d; %v", dead, lost, err)
		}
		after := query[time.Time](f, `SELECT clock_timestamp()`)
		delay := time.Duration(math.Min(60, math.Pow(2, float64(failed))) * float64(time.Second))
		first := query[time.Time](f, `SELECT min(next_retry_at) FROM `+tableName)
		last := query[time.Time](f, `SELECT max(next_retry_at) FROM `+tableName)
		if first.Before(before.Add(delay/2)) || last.After(after.Add(delay*3/2)) {
			t.Errorf("after %d failures: %s to %s, want within %s to %s", failed, first.Sub(before), last.Sub(after), delay/2, delay*3/2)
		}
		if last.Sub(first) < delay/2 {
			t.Errorf("after %d failures all rows come back within %s: too little spread", failed, last.Sub(first))
		}
	}
}

// The delay that the other side asked for replaces the backoff, longer or shorter.
func TestRetryAfterWins(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(3)
	claim := f.claim(f.worker("w"), 3)
	before := query[time.Time](f, `SELECT clock_timestamp()`)
	wishes := []time.Duration{20 * time.Millisecond, 7 * time.Second, time.Hour}
	var fs []lease.Failure
	for i, id := range ids {
		fs = append(fs, lease.Failure{ID: id, Reason: errTest, After: wishes[i]})
	}
	if _, _, err := claim.Retry(f.ctx, fs); err != nil {
		t.Fatal(err)
	}
	after := query[time.Time](f, `SELECT clock_timestamp()`)
	for i, id := range ids {
		next := f.row(id).NextRetry
		if next.Before(before.Add(wishes[i])) || next.After(after.Add(wishes[i])) {
			t.Errorf("the row is due after %s, want %s", next.Sub(before), wishes[i])
		}
	}
}

// Error texts come from outside: whatever they contain, the row is put back.
func TestAnyErrorTextIsStorable(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(1000))
	ids := f.insert(1)
	w := f.worker("w")
	for _, text := range []string{"", "nul\x00nul", "broken \xff\xfe utf-8", strings.Repeat("é", 5000), "x" + strings.Repeat("é", 5000), strings.Repeat("\xff", 5000)} {
		claim := f.claim(w, 1)
		_, lost, err := claim.Retry(f.ctx, []lease.Failure{{ID: ids[0], Reason: errors.New(text)}})
		if err != nil || lost != 0 {
			t.Fatalf("%.20q: lost %d; %v", text, lost, err)
		}
		if r := f.row(ids[0]); r.LastError == nil || len(*r.LastError) > 4000 {
			t.Fatalf("%.20q: the stored error is missing or longer than 4000 bytes", text)
		}
		f.due()
	}
}
