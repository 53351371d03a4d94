package account_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/id"
)

func TestRegisterAndGet(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.store.Get(f.ctx, issuer, "ann"); !errors.Is(err, account.ErrNotFound) {
		t.Errorf("before Register: %v, want ErrNotFound", err)
	}
	before := time.Now().Add(-time.Minute)
	ann := f.register("ann", "player", "admin", "player")
	if u, err := id.Parse(id.User, ann.UserID); err != nil || u.Version() != 7 {
		t.Errorf("%s: %v", ann.UserID, err)
	}
	if ann.CreatedAt.Before(before) || ann.CreatedAt.After(time.Now().Add(time.Minute)) || ann.CreatedAt.Location() != time.UTC {
		t.Errorf("created at %s", ann.CreatedAt)
	}
	want := account.Account{
		UserID: ann.UserID, Roles: []string{"admin", "player"}, CreatedAt: ann.CreatedAt,
		Identities: []account.Identity{{Issuer: issuer, Subject: "ann", LinkedAt: ann.CreatedAt}},
	}
	got, err := f.store.Get(f.ctx, issuer, "ann")
	if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(ann, want) {
		t.Errorf("want\n%+v\nregistered\n%+v\nread\n%+v, %v", want, ann, got, err)
	}
	if again := f.register("ann", "admin", "player"); !reflect.DeepEqual(again, want) {
		t.Errorf("registered again: %+v, want %+v", again, want)
	}
	if bob := f.register("bob", "player"); bob.UserID == ann.UserID {
		t.Error("two subjects are one user")
	}
	if other, err := f.store.Register(f.ctx, another, "ann", nil); err != nil || other.UserID == ann.UserID {
		t.Errorf("one subject at two issuers is one user: %v", err)
	}
	f.whole(3, 3)
}

// The roles of an account without roles are [], not null, so that clients can loop over
// them.
func TestNoRolesIsAnEmptyList(t *testing.T) {
	t.Parallel()
	f := setup(t)
	made := f.register("ann")
	read, err := f.store.Get(f.ctx, issuer, "ann")
	for _, a := range []account.Account{made, read} {
		if text, _ := json.Marshal(a); err != nil || !strings.Contains(string(text), `"roles":[]`) {
			t.Errorf("the account is %s, %v; want roles []", text, err)
		}
	}
}

// An identity signs in for the first time in many calls at once: one user is made.
func TestRegisterAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const rounds = 10
	for round := range rounds {
		subject := fmt.Sprint("s", round)
		users := map[string]int{}
		var mutex sync.Mutex
		atOnce(64, func(int) {
			a, err := f.store.Register(f.ctx, issuer, subject, []string{"player"})
			if err != nil || !slices.Equal(a.Roles, []string{"player"}) || len(a.Identities) != 1 {
				t.Errorf("registered %+v, %v; want one identity and the role player", a, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			users[a.UserID]++
		})
		if len(users) != 1 {
			t.Errorf("%d users were made, want 1: %v", len(users), users)
		}
	}
	f.whole(rounds, rounds)
}

// Registering a known identity with the same roles works on a read-only database; a new
// identity, or one with other roles, is refused there.
func TestKnownWritesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ann := f.register("ann", "admin", "player")
	again, err := f.readOnly().Register(f.ctx, issuer, "ann", []string{"player", "", "admin", "player"})
	if err != nil || !reflect.DeepEqual(again, ann) {
		t.Errorf("got %+v, %v; want %+v", again, err, ann)
	}
	for _, change := range []struct{ subject, role string }{{"ann", "player"}, {"bob", "player"}} {
		if a, err := f.readOnly().Register(f.ctx, issuer, change.subject, []string{change.role}); err == nil {
			t.Errorf("%s is registered without a write: %+v", change.subject, a)
		}
	}
	f.whole(1, 1)
}

// A change of roles writes the rows that differ, and leaves the others.
func TestRolesAreReplaced(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.register("ann", "a", "b", "c")
	f.register("bob", "a", "b")
	xmin := func() string {
		return query[string](f, `SELECT string_agg(user_id || role || xmin::text, ' ' ORDER BY user_id, role) FROM account.user_roles WHERE role = 'b'`)
	}
	before := xmin()
	for _, roles := range [][]string{{"b", "d"}, {"b"}, {"e", "b", "a"}} {
		made := f.register("ann", roles...)
		slices.Sort(roles)
		got, err := f.store.Get(f.ctx, issuer, "ann")
		if err != nil || !slices.Equal(got.Roles, roles) || !slices.Equal(made.Roles, roles) {
			t.Errorf("%v, %v, want %v: %v", made.Roles, got.Roles, roles, err)
		}
	}
	if after := xmin(); after != before {
		t.Errorf("an unchanged row was written: %s became %s", before, after)
	}
	f.register("ann")
	if bob, err := f.store.Get(f.ctx, issuer, "bob"); err != nil || !slices.Equal(bob.Roles, []string{"a", "b"}) {
		t.Errorf("bob's roles are %v, %v; want a and b", bob.Roles, err)
	}
	if n := query[int](f, `SELECT count(*) FROM account.user_roles`); n != 2 {
		t.Errorf("%d roles are left, want bob's 2", n)
	}
}

// Tokens with different roles come at once: the roles that are stored, and those that are
// read, are those of one token, never a mixture.
func TestRolesAreOfOneToken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.register("ann")
	one := func(roles []string) bool {
		return len(roles) == 0 || len(roles) == 3 && roles[0][:2] == roles[1][:2] && roles[0][:2] == roles[2][:2]
	}
	for range 8 {
		atOnce(64, func(i int) {
			said := []string{fmt.Sprintf("%02d-x", i), fmt.Sprintf("%02d-y", i), fmt.Sprintf("%02d-z", i)}
			a, err := f.store.Register(f.ctx, issuer, "ann", said)
			if err != nil || !slices.Equal(a.Roles, said) {
				t.Errorf("registered with roles %v, %v; want %v", a.Roles, err, said)
			}
			if a, err := f.store.Get(f.ctx, issuer, "ann"); err != nil || !one(a.Roles) {
				t.Errorf("read the roles %v, %v; want those of one token", a.Roles, err)
			}
		})
		if a := query[[]string](f, `SELECT array_agg(role ORDER BY role) FROM account.user_roles`); !one(a) {
			t.Fatalf("the stored roles %v are of several tokens", a)
		}
	}
}

// Invalid roles are left out, and none is cut to fit. Of too many roles the same ones are
// kept, in whatever order they come.
func TestOddRoles(t *testing.T) {
	t.Parallel()
	f := setup(t)
	longest := strings.Repeat("ü", 64)
	a := f.register("ann", "", "\x00", "operator\x00", "\xff", longest+"u", strings.Repeat("r", 10_000), "Z", "a", "ß", longest)
	if want := []string{"Z", "a", "ß", longest}; !slices.Equal(a.Roles, want) {
		t.Errorf("the roles are %q, want %q", a.Roles, want)
	}
	if got, err := f.readOnly().Register(f.ctx, issuer, "ann", a.Roles); err != nil || !slices.Equal(got.Roles, a.Roles) {
		t.Errorf("the roles are read as %q, %v; want them as written", got.Roles, err)
	}
	var many []string
	for n := range 200 {
		many = append(many, fmt.Sprintf("role-%03d", n))
	}
	for range 3 {
		rand.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		a := f.register("ann", many...)
		if len(a.Roles) != 64 || a.Roles[0] != "role-000" || a.Roles[63] != "role-063" {
			t.Errorf("%d roles, want the first 64: %q", len(a.Roles), a.Roles)
		}
	}
}
