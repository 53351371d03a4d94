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

// Attempts count at the claim, so a payload that kills its worker every time
// comes to an end.
func TestCrashAtTheLastAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(3))
	ids := f.insert(1)
	w := f.worker("w")
	for n := 1; n <= 3; n++ {
		claim := f.claim(w, 1)
		if c := claim.Rows[0]; c.Attempt != n || c.Exhausted {
			t.Fatalf("claim %d: %+v", n, c)
		}
		if r := f.row(ids[0]); r.Attempts != n || r.Status != "IN_FLIGHT" {
			t.Fatalf("after claim %d: %+v", n, r)
		}
		f.expire() // the worker died
	}
	claim := f.claim(w, 1)
	if c := claim.Rows[0]; !c.Exhausted || c.Attempt != 3 {
		t.Fatalf("%+v", c)
	}
	if lost, err := claim.GiveUp(f.ctx, []lease.Failure{{ID: ids[0], Reason: lease.ErrExhausted}}); lost != 0 || err != nil {
		t.Fatal(lost, err)
	}
	r := f.row(ids[0])
	if r.Status != "FAILED" || !r.Finished || r.Held || r.LastError == nil || *r.LastError != lease.ErrExhausted.Error() {
		t.Fatalf("%+v", r)
	}
	f.claim(w, 0)
}

// One row kills each worker that claims it. All others are finished, however many were
// claimed together with it, and it alone is given up.
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
				// Halving 500 takes nine deaths; then come those that count.
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
							t.Fatalf("given up among %d rows", len(claim.Rows))
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

// A worker that dies on each try, whatever it holds, fails no row that it held together
// with others.
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
	// Each of ten starts took a part; what is left of the leases ends.
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
		t.Errorf("the last attempt: %+v", r)
	}
	if r := f.row(ids[1]); r.Status != "PENDING" || r.Attempts != 1 || r.Held || r.LastError == nil || *r.LastError != errTest.Error() {
		t.Errorf("the first attempt: %+v", r)
	}
}

// A terminal row is never claimed again, whatever its times say.
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
			t.Errorf("%s: lost %d; %v", name, lost, err)
		}
	}
}

// Whatever is away may be away for a thousand claims: that costs no attempt.
func TestReturnUsesNoAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t, attempts(2))
	ids := f.insert(1)
	w := f.worker("w")
	for range 20 {
		claim := f.claim(w, 1)
		if claim.Rows[0].Attempt != 1 || claim.Rows[0].Exhausted {
			t.Fatalf("%+v", claim.Rows[0])
		}
		if lost, err := claim.Return(f.ctx, failures(ids)); lost != 0 || err != nil {
			t.Fatal(lost, err)
		}
		r := f.row(ids[0])
		if r.Status != "PENDING" || r.Attempts != 0 || r.Held {
			t.Fatalf("%+v", r)
		}
		if !r.NextRetry.After(query[time.Time](f, `SELECT now()`)) {
			t.Fatal("returned without a backoff")
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

// The other side's wish replaces the backoff, longer or shorter than it.
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
			t.Errorf("asked for %s, got %s", wishes[i], next.Sub(before))
		}
	}
}

// Error texts come from outside; whatever they hold, the row is put back.
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
			t.Fatalf("%.20q: %v", text, r.LastError)
		}
		f.due()
	}
}
