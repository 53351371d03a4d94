package account_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestLink(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann, bob := f.register("ann", "player"), f.register("bob")
	linked, err := f.store.Link(f.ctx, ann.UserID, another, "ann-2")
	if err != nil || linked.UserID != ann.UserID || len(linked.Identities) != 2 || !linked.CreatedAt.Equal(ann.CreatedAt) || !reflect.DeepEqual(linked.Roles, ann.Roles) {
		t.Fatalf("linked %+v, %v; want ann's account with 2 identities", linked, err)
	}
	if first, second := linked.Identities[0], linked.Identities[1]; first != ann.Identities[0] || second.Issuer != another || second.Subject != "ann-2" || !second.LinkedAt.After(first.LinkedAt) {
		t.Errorf("the identities are %+v, want ann's first and ann-2", linked.Identities)
	}
	// Both identities are now this user, also at sign-in.
	for _, read := range []func() (account.Account, error){
		func() (account.Account, error) { return f.store.Get(f.ctx, issuer, "ann") },
		func() (account.Account, error) { return f.store.Get(f.ctx, another, "ann-2") },
		func() (account.Account, error) { return f.store.Register(f.ctx, another, "ann-2", ann.Roles) },
		// Linking either identity again writes nothing.
		func() (account.Account, error) { return f.readOnly().Link(f.ctx, ann.UserID, another, "ann-2") },
		func() (account.Account, error) { return f.readOnly().Link(f.ctx, ann.UserID, issuer, "ann") },
	} {
		if a, err := read(); err != nil || !reflect.DeepEqual(a, linked) {
			t.Errorf("got %+v, %v; want %+v", a, err, linked)
		}
	}
	for _, taken := range []struct{ issuer, subject string }{{another, "ann-2"}, {issuer, "ann"}} {
		if a, err := f.store.Link(f.ctx, bob.UserID, taken.issuer, taken.subject); !errors.Is(err, account.ErrIdentityTaken) || a.UserID != "" {
			t.Errorf("linking %s: %+v, %v; want ErrIdentityTaken", taken.subject, a, err)
		}
	}
	if a, err := f.store.Get(f.ctx, issuer, "bob"); err != nil || !reflect.DeepEqual(a, bob) {
		t.Errorf("bob's account is %+v, %v; want %+v", a, err, bob)
	}
	f.whole(2, 3)
}

// No identity is linked to a user that does not exist, whatever the id looks like.
func TestLinkToNobody(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("ann")
	for _, user := range []string{id.Text(id.User, id.New()), id.Text(id.Notification, id.New()), "u_123", "", "\x00", ann.UserID + " "} {
		for _, subject := range []string{"new", "ann"} {
			if a, err := f.store.Link(f.ctx, user, issuer, subject); !errors.Is(err, account.ErrNotFound) {
				t.Errorf("%q: %+v, %v; want ErrNotFound", user, a, err)
			}
		}
	}
	f.whole(1, 1)
}

// One identity is linked to different users at once, while it also signs in. It becomes
// one user's, and all other calls fail with ErrIdentityTaken.
func TestLinkOneIdentityAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const users, rounds = 64, 8
	ids := make([]string, users)
	for i := range ids {
		ids[i] = f.register(fmt.Sprint("s", i)).UserID
	}
	made := 0
	for round := range rounds {
		subject := fmt.Sprint("shared", round)
		var won, lost atomic.Int64
		var owner, registered atomic.Value
		atOnce(users+2, func(i int) {
			if i >= users {
				if round%2 == 1 {
					a, err := f.store.Register(f.ctx, another, subject, nil)
					if err != nil {
						t.Error(err)
					}
					registered.Store(a.UserID)
				}
				return
			}
			switch a, err := f.store.Link(f.ctx, ids[i], another, subject); {
			case err == nil && a.UserID == ids[i]:
				won.Add(1)
				owner.Store(a.UserID)
			case errors.Is(err, account.ErrIdentityTaken):
				lost.Add(1)
			default:
				t.Errorf("linked %+v, %v; want the account or ErrIdentityTaken", a, err)
			}
		})
		a, err := f.store.Get(f.ctx, another, subject)
		if err != nil || won.Load() == 1 && a.UserID != owner.Load() || round%2 == 1 && a.UserID != registered.Load() {
			t.Errorf("owner %s, %v; won by %v, registered as %v", a.UserID, err, owner.Load(), registered.Load())
		}
		if won.Load() == 0 && round%2 == 1 {
			made++ // the sign-in came first and made a user of its own
		} else if won.Load() != 1 {
			t.Errorf("%d links succeeded, want 1", won.Load())
		}
		if won.Load()+lost.Load() != users {
			t.Errorf("%d links succeeded and %d were refused, want %d in all", won.Load(), lost.Load(), users)
		}
	}
	f.whole(users+made, users+rounds)
}

// 32 identities are linked to one user at once, each by two calls: 9 find room beside the
// first identity, and for each of these both calls succeed.
func TestLinkUpToTheLimit(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for round := range 5 {
		ann := f.register(fmt.Sprint("ann", round))
		var won, full [32]atomic.Int64
		atOnce(64, func(i int) {
			switch _, err := f.store.Link(f.ctx, ann.UserID, another, fmt.Sprint(round, "-", i/2)); {
			case err == nil:
				won[i/2].Add(1)
			case errors.Is(err, account.ErrTooManyIdentities):
				full[i/2].Add(1)
			default:
				t.Error(err)
			}
		})
		linked := 0
		for i := range won {
			if won[i].Load() > 0 {
				linked++
			}
			if won[i].Load()+full[i].Load() != 2 {
				t.Errorf("identity %d: %d won, %d full", i, won[i].Load(), full[i].Load())
			}
			// Places only fill up, so both calls for an identity have the same outcome.
			if won[i].Load() == 1 {
				t.Errorf("identity %d is linked for one and refused to the other", i)
			}
		}
		a, err := f.store.Get(f.ctx, issuer, fmt.Sprint("ann", round))
		if err != nil || len(a.Identities) != account.MaxIdentities || linked != account.MaxIdentities-1 {
			t.Errorf("%d identities, %d linked, %v", len(a.Identities), linked, err)
		}
		for i := 1; i < len(a.Identities); i++ {
			if !a.Identities[i].LinkedAt.After(a.Identities[i-1].LinkedAt) {
				t.Errorf("%v is not after %v", a.Identities[i].LinkedAt, a.Identities[i-1].LinkedAt)
			}
		}
		// At the limit linked identities stay linked, and taken ones stay taken.
		last := a.Identities[account.MaxIdentities-1]
		if again, err := f.store.Link(f.ctx, ann.UserID, last.Issuer, last.Subject); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("linking a linked identity again: %+v, %v; want %+v", again, err, a)
		}
		f.register("bob")
		if _, err := f.store.Link(f.ctx, ann.UserID, issuer, "bob"); !errors.Is(err, account.ErrIdentityTaken) {
			t.Error(err)
		}
		if _, err := f.store.Link(f.ctx, ann.UserID, issuer, "carol"); !errors.Is(err, account.ErrTooManyIdentities) {
			t.Error(err)
		}
	}
}

// linked_at has the order of linking, even if a link began earlier and had to wait.
func TestLinkedAtOfWhoWaited(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("ann")
	tx, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(f.ctx, `SELECT FROM account.users FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	linked := make(chan account.Account, 1)
	go func() {
		a, err := f.store.Link(f.ctx, ann.UserID, another, "waited")
		if err != nil {
			t.Error(err)
		}
		linked <- a
	}()
	kit.Eventually(t, "the link waits for a lock", func() bool {
		return query[int](f, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	if _, err := tx.Exec(f.ctx, `INSERT INTO account.identities SELECT $1, 'held', user_id, clock_timestamp() FROM account.users`, another); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-linked; len(a.Identities) != 3 || a.Identities[2].Subject != "waited" {
		t.Errorf("the identities are %+v, want 3 with waited as the last", a.Identities)
	}
}

// An identity that is to be linked while its user is erased, or after that, is not: nothing
// leads to an erased user.
func TestLinkToWhoIsErased(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("ann", "player")
	tx, err := f.pool.Begin(f.ctx)
	kit.Must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = account.Detach(f.ctx, tx, ann.UserID)
	kit.Must(t, err)
	linked, registered := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := f.store.Link(f.ctx, ann.UserID, another, "meanwhile")
		linked <- err
	}()
	go func() {
		_, err := f.store.Register(f.ctx, issuer, "ann", []string{"operator"})
		registered <- err
	}()
	kit.Eventually(t, "both wait for the user's lock", func() bool {
		return query[int](f, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
	})
	kit.Must(t, tx.Commit(f.ctx))
	if err := <-linked; !errors.Is(err, account.ErrNotFound) {
		t.Errorf("linked meanwhile: %v, want ErrNotFound", err)
	}
	kit.Must(t, <-registered)
	if _, err := f.store.Link(f.ctx, ann.UserID, another, "later"); !errors.Is(err, account.ErrNotFound) {
		t.Errorf("linked later: %v, want ErrNotFound", err)
	}
	if n := query[int](f, `SELECT (SELECT count(*) FROM account.identities) + (SELECT count(*) FROM account.user_roles)`); n != 0 {
		t.Errorf("the erased user has %d identities and roles, want none", n)
	}
}

// Identities that were linked at the same time are sorted by issuer and subject.
func TestIdentitiesInOrder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("m")
	for _, i := range []account.Identity{{Issuer: "b", Subject: "a"}, {Issuer: "b", Subject: "B"}, {Issuer: "a", Subject: "z"}, {Issuer: "ä", Subject: "a"}} {
		if _, err := f.store.Link(f.ctx, ann.UserID, i.Issuer, i.Subject); err != nil {
			t.Fatal(err)
		}
	}
	f.exec(`UPDATE account.identities SET linked_at = '2026-01-08T07:10:00Z' WHERE issuer <> $1`, issuer)
	f.exec(`UPDATE account.identities SET linked_at = '2026-01-08T07:11:00Z' WHERE issuer = $1`, issuer)
	a, err := f.store.Get(f.ctx, "b", "B")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, i := range a.Identities {
		got += i.Issuer + "/" + i.Subject + " "
	}
	if want := "a/z b/B b/a ä/a " + issuer + "/m "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
