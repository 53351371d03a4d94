package transfer_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// earlier is an instance of the release before database functions had versions: it sends
// that release's statements.
type earlier struct{ pool *pgxpool.Pool }

// take is transaction A.
func (e earlier) take(ctx context.Context, w wish, attempt uuid.UUID) (outcome string, key *int64, snapshot *string, err error) {
	hash := sha256.Sum256(fmt.Appendf(nil, `{"fromAccountId":%d,"toAccountId":%d,"amount":%s}`, w.from, w.to, w.amount))
	err = e.pool.QueryRow(ctx, `SELECT outcome, key_id, snapshot FROM integration.take_key($1, $2, $3, $4, $5, $6, $7, $8)`,
		w.client, transfer.Scope, w.key, hash[:], attempt, w.owner, w.from, w.to).Scan(&outcome, &key, &snapshot)
	return outcome, key, snapshot, err
}

// move is TX1.
func (e earlier) move(ctx context.Context, w wish, key int64, attempt uuid.UUID) (snapshot, ended string, err error) {
	transferID := id.New()
	err = e.pool.QueryRow(ctx, `SELECT snapshot, ended_as FROM core.move_money($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		key, attempt, transferID, id.Text(id.Transfer, transferID), id.New(), w.from, w.to, w.amount.String(), transfer.Ordinary, nil, w.key).Scan(&snapshot, &ended)
	return snapshot, ended, err
}

// An instance of the earlier release runs beside one of this release, with the rights that
// this release grants. Each finds what the other did with a key, and together they neither
// create nor lose money.
func TestEarlierReleaseBeside(t *testing.T) {
	t.Parallel()
	a := newArena(t, 8, "cache_statement", func(url string) string { return kit.As(url, "transfer") })
	old := earlier{kit.Connect(t, kit.As(a.url, "transfer"))}
	from, to := a.open("u_a", "100"), a.open("u_b", "100")

	sent, attempt := a.wish("u_a", from, to, "1"), id.New()
	outcome, key, _, err := old.take(t.Context(), sent, attempt)
	if err != nil || outcome != "TAKEN" {
		t.Fatalf("the earlier release takes a key: %s, %v; want TAKEN", outcome, err)
	}
	a.mustBe(t, a.Store, sent, transfer.InProgress)
	body, ended, err := old.move(t.Context(), sent, *key, attempt)
	if err != nil || ended != transfer.Succeeded {
		t.Errorf("the earlier release moves money: %s, %v; want SUCCEEDED", body, err)
	}
	if answer, err := a.ask(t.Context(), a.Store, sent); err != nil || string(answer.Body) != body || !answer.Replayed {
		t.Errorf("after the earlier release this one answers %+v %s, %v; want %s", answer, answer.Body, err, body)
	}

	sent = a.wish("u_b", to, from, "2")
	answer, err := a.ask(t.Context(), a.Store, sent)
	kit.Must(t, err)
	if outcome, _, snapshot, err := old.take(t.Context(), sent, id.New()); err != nil || outcome != "ENDED" || *snapshot != string(answer.Body) {
		t.Errorf("after this release the earlier one finds %s, %v; want ENDED with %s", outcome, err, answer.Body)
	}

	opening := id.New()
	var opened string
	first := sha256.Sum256([]byte("first"))
	kit.Must(t, old.pool.QueryRow(t.Context(), `SELECT outcome FROM core.open_account('ops', $1, 'key', $2, '1 hour', 'u_c', 'EUR', 5, $3, $4, $5, '')`,
		transfer.OpenScope, first[:], opening, id.Text(id.Transfer, opening), id.New()).Scan(&opened))
	if opened != "OPENED" {
		t.Errorf("the earlier release opens an account: %s, want OPENED", opened)
	}

	// Both releases transfer in both directions at once.
	var group sync.WaitGroup
	for n := range 8 {
		there, back := a.wish("u_a", from, to, "0.5"), a.wish("u_b", to, from, "0.5")
		if n%2 == 0 {
			there, back = back, there
		}
		group.Go(func() {
			attempt := id.New()
			_, key, _, err := old.take(t.Context(), there, attempt)
			if err == nil {
				_, _, err = old.move(t.Context(), there, *key, attempt)
			}
			if err != nil {
				t.Error(err)
			}
			if _, err := a.ask(t.Context(), a.calm, there); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() { a.mustBe(t, a.Store, back, transfer.Succeeded) })
	}
	group.Wait()
	a.mustBeRight()
}
