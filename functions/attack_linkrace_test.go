package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
)

// 16 accounts want one identity at once: one gets it.
func TestAttackLinkRace(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	const accounts = 16
	wanted := i.fresh(t, "wanted", nil)
	tokens, users, answers := make([]string, accounts), make([]string, accounts), make([]answer, accounts)
	for n := range accounts {
		tokens[n] = i.fresh(t, fmt.Sprint("account", n), nil)
		users[n] = s.userID(tokens[n])
	}
	atOnce(accounts, func(n int) { answers[n] = s.linkToken(tokens[n], wanted) })
	winner := ""
	for n, a := range answers {
		if a.status != http.StatusOK {
			wantProblem(t, a, http.StatusConflict, "identity_taken")
			continue
		}
		if winner != "" {
			t.Error("two have it")
		}
		winner = users[n]
	}
	if got := s.userID(wanted); winner == "" || got != winner {
		t.Errorf("it is %s's, and %s won", got, winner)
	}
	if n := s.count(`SELECT count(*) FROM account.identities`); n != accounts+1 {
		t.Errorf("%d identities", n)
	}
	var orphans int
	must(t, s.pool.QueryRow(context.Background(), `SELECT count(*) FROM account.users u WHERE NOT EXISTS (SELECT FROM account.identities i WHERE i.user_id = u.user_id)`).Scan(&orphans))
	if orphans != 0 {
		t.Errorf("%d users without an identity", orphans)
	}
}
