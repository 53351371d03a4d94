package transfer_test

import (
	"fmt"
	"testing"
)

// The report adds up while entries are outstanding. When a balance was changed or an entry
// was lost, it names the account and the difference.
func TestBalanceCheck(t *testing.T) {
	s := start(t)
	a, b := s.open("u_a", "100.5"), s.open("u_b", "0")
	_, err := s.Transfer(t.Context(), s.request("u_a", a, b, "0.0001"))
	if err != nil {
		t.Fatal(err)
	}
	report := func() string {
		t.Helper()
		r, err := s.CheckBalances(t.Context(), "", 100)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Balanced, r.WithoutEntries, r.Checked, r.Currencies, r.Differences)
	}
	if got := report(); got != "true 2 3 [{EUR 2 100.5 -100.5 0}] []" {
		t.Errorf("with entries outstanding the report is %s", got)
	}
	if _, err := s.WriteLedger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := report(); got != "true 0 3 [{EUR 2 100.5 -100.5 0}] []" {
		t.Errorf("with all entries written the report is %s", got)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`UPDATE core.account SET balance = balance + 1 WHERE account_id = $1`, b)
	if got, want := report(), fmt.Sprintf("false 0 3 [{EUR 2 101.5 -100.5 1}] [{%d 1.0001 0.0001 0 1}]", b); got != want {
		t.Errorf("with a changed balance the report is %s, want %s", got, want)
	}
	exec(`UPDATE core.account SET balance = balance - 1 WHERE account_id = $1`, b)
	exec(`DELETE FROM core.ledger WHERE account_id = $1 AND side = 'DEBIT'`, a)
	if got, want := report(), fmt.Sprintf("false 0 3 [{EUR 2 100.5 -100.5 0}] [{%d 100.4999 100.5 0 -0.0001}]", a); got != want {
		t.Errorf("with a lost entry the report is %s, want %s", got, want)
	}
}

// The pages of the check hold every account once.
func TestBalanceCheckPages(t *testing.T) {
	s := start(t)
	for i := range 5 {
		s.open(fmt.Sprint("u_", i), "1")
	}
	checked, pages, cursor := 0, 0, ""
	for ; pages == 0 || cursor != ""; pages++ {
		r, err := s.CheckBalances(t.Context(), cursor, 2)
		if err != nil || !r.Balanced {
			t.Fatalf("the report is %+v, %v; want it balanced", r, err)
		}
		checked, cursor = checked+r.Checked, r.NextCursor
	}
	if checked != 6 || pages != 4 {
		t.Errorf("%d accounts on %d pages, want 6 on 4", checked, pages)
	}
	if _, err := s.CheckBalances(t.Context(), "not a cursor", 2); err == nil {
		t.Error("an invalid cursor is accepted")
	}
}
