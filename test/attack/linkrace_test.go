package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// 16 accounts link one identity at once: one gets it.
func TestAttackLinkRace(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	const accounts = 16
	wanted := i.Fresh(t, "wanted", nil)
	tokens, users, answers := make([]string, accounts), make([]string, accounts), make([]system.Answer, accounts)
	for n := range accounts {
		tokens[n] = i.Fresh(t, fmt.Sprint("account", n), nil)
		users[n] = s.UserID(tokens[n])
	}
	system.AtOnce(accounts, func(n int) { answers[n] = s.LinkToken(tokens[n], wanted) })
	winner := ""
	for n, a := range answers {
		if a.Status != http.StatusOK {
			system.WantProblem(t, a, http.StatusConflict, "identity_taken")
			continue
		}
		if winner != "" {
			t.Error("two accounts got the identity")
		}
		winner = users[n]
	}
	if got := s.UserID(wanted); winner == "" || got != winner {
		t.Errorf("the identity belongs to %s, but was linked to %s", got, winner)
	}
	if n := s.Count(`SELECT count(*) FROM account.identities`); n != accounts+1 {
		t.Errorf("%d identities, want %d", n, accounts+1)
	}
	var orphans int
	kit.Must(t, s.Pool.QueryRow(context.Background(), `SELECT count(*) FROM account.users u WHERE NOT EXISTS (SELECT FROM account.identities i WHERE i.user_id = u.user_id)`).Scan(&orphans))
	if orphans != 0 {
		t.Errorf("%d users without an identity", orphans)
	}
}
