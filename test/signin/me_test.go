package signin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// roles returns the roles in an answer about an account.
func roles(t testing.TB, a system.Answer) string {
	t.Helper()
	system.WantStatus(t, a, http.StatusOK)
	return fmt.Sprint(a.JSON(t)["roles"])
}

// 64 registrations at once with one identity: there is one user, and all are answered
// with it.
func TestRegisterAtOnce(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	const clients = 64
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		token, ids := people.Player(t, "new by "+method), make([]string, clients)
		system.AtOnce(clients, func(i int) {
			a := s.Call(method, system.MePath, token, "")
			if a.Status != http.StatusOK {
				t.Errorf("answered %d %s, want 200", a.Status, a.Body)
				return
			}
			ids[i], _ = a.JSON(t)["user_id"].(string)
		})
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) != 1 || !strings.HasPrefix(ids[0], "u_") {
			t.Errorf("%s answered the user ids %q, want one", method, ids)
		}
	}
	if users, identities := s.Count(`SELECT count(*) FROM account.users`), s.Count(`SELECT count(*) FROM account.identities`); users != 2 || identities != 2 {
		t.Errorf("%d users and %d identities, want 2 of each", users, identities)
	}
}

// A caller is registered by any route, and reads their own account with its identity at
// the issuer. Another subject is another user.
func TestMe(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	ids := map[string]string{}
	for subject, first := range map[string][2]string{
		"by GET":      {http.MethodGet, system.MePath},
		"by POST":     {http.MethodPost, system.MePath},
		"by overview": {http.MethodGet, "/v1/me/overview"},
		"by inbox":    {http.MethodGet, system.InboxPath},
	} {
		token := people.Player(t, subject)
		system.WantStatus(t, s.Call(first[0], first[1], token, ""), http.StatusOK)
		if n := s.Count(`SELECT count(*) FROM account.identities WHERE subject = $1`, subject); n != 1 {
			t.Errorf("%s: %d identities, want 1", subject, n)
		}
		me := s.Call(http.MethodGet, system.MePath, token, "").JSON(t)
		identities := me["identities"].([]any)
		if len(identities) != 1 {
			t.Fatalf("%s: the account has the identities %v, want one", subject, identities)
		}
		identity := identities[0].(map[string]any)
		if identity["issuer"] != people.URL || identity["subject"] != subject {
			t.Errorf("%s: the account has the identity %v", subject, identity)
		}
		for name, at := range map[string]any{"created_at": me["created_at"], "linked_at": identity["linked_at"]} {
			if when, err := time.Parse(time.RFC3339Nano, fmt.Sprint(at)); err != nil || time.Since(when) > time.Minute || !strings.HasSuffix(fmt.Sprint(at), "Z") {
				t.Errorf("%s: %s is %v, want the current time in UTC", subject, name, at)
			}
		}
		id := me["user_id"].(string)
		if whose := ids[id]; whose != "" {
			t.Errorf("%s and %s are one user", whose, subject)
		}
		ids[id] = subject
		// Another token of the same subject, even for another client, is the same user.
		for _, azp := range []string{"miniserver-web", "ops"} {
			if again := s.UserID(people.Token(t, map[string]any{"sub": subject, "azp": azp})); again != id {
				t.Errorf("%s is the user %s, and with a token for %s the user %s", subject, id, azp, again)
			}
		}
	}
	// A subject is taken literally: case and spaces matter.
	before := len(ids)
	for _, subject := range []string{"x", "X", "x ", " x", "x\u00a0"} {
		ids[s.UserID(people.Player(t, subject))] = subject
	}
	if len(ids) != before+5 {
		t.Errorf("some subjects are one user: %v", ids)
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.MePath, "", ""), http.StatusUnauthorized, "token_missing")
	system.WantProblem(t, s.Call(http.MethodPost, system.MePath, "", ""), http.StatusUnauthorized, "token_missing")
}

// Roles are those of the token, more or fewer; without a known one, the caller is a
// player.
func TestRolesFollowTheToken(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	token := func(roles ...string) string {
		access := any(map[string]any{"roles": roles})
		if roles == nil {
			access = nil
		}
		return people.Token(t, map[string]any{"sub": "somebody", "realm_access": access})
	}
	stored := func() string {
		var kept []string
		kit.Must(t, s.Pool.QueryRow(t.Context(), `SELECT coalesce(array_agg(role ORDER BY role), '{}') FROM account.user_roles`).Scan(&kept))
		return fmt.Sprint(kept)
	}
	for _, test := range []struct {
		claimed []string
		want    string
	}{
		{[]string{"player"}, "[player]"},
		{[]string{"operator", "player"}, "[operator player]"},
		{[]string{"operator", "entitlement-writer", "operator"}, "[entitlement-writer operator]"},
		{[]string{"player"}, "[player]"},
		{[]string{}, "[player]"},
		{nil, "[player]"},
		{[]string{"offline_access"}, "[offline_access player]"},
		{[]string{"Operator", "operator "}, "[Operator operator  player]"},
	} {
		// Reading answers with this token's roles and stores nothing; registering stores
		// them.
		before := stored()
		if got := roles(t, s.Call(http.MethodGet, system.MePath, token(test.claimed...), "")); got != test.want || before != "[]" && stored() != before {
			t.Errorf("GET with %q answered %s, stored is %s", test.claimed, got, stored())
		}
		if got := roles(t, s.Call(http.MethodPost, system.MePath, token(test.claimed...), "")); got != test.want || stored() != test.want {
			t.Errorf("POST with %q answered %s, stored is %s", test.claimed, got, stored())
		}
	}
	// An older token still has its role: stored roles neither give nor take any.
	operator := token("operator")
	s.UserID(token("player"))
	system.WantStatus(t, s.Call(http.MethodGet, "/debug/notification/inbox/u_1", operator, ""), http.StatusOK)
	s.UserID(operator)
	system.WantProblem(t, s.Call(http.MethodGet, "/debug/notification/inbox/u_1", token("player"), ""), http.StatusForbidden, "role_missing")
	if n := s.Count(`SELECT count(*) FROM account.users`); n != 1 {
		t.Errorf("%d users, want 1", n)
	}
}

// A user's own inbox, newest first, in pages that hold each notification once.
func TestMyInbox(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob, carol := people.Player(t, "alice"), people.Player(t, "bob"), people.Player(t, "carol")
	user, other := s.UserID(alice), s.UserID(bob)
	const mine, others = 120, 3
	for n := range others {
		s.Grant(fmt.Sprint("bob", n), other, system.SKU(n))
	}
	system.AtOnce(8, func(worker int) {
		for n := worker; n < mine; n += 8 {
			s.Grant(fmt.Sprint("k", n), user, system.SKU(n))
		}
	})
	s.DeliverAll()
	s.Grant("newest", user, "newest")
	s.Tick("relay")
	s.Tick("notify") // accepted and not sent: it is in the inbox too

	for _, limit := range []int{1, 7, 100, 0} {
		query := "?"
		if limit > 0 {
			query = fmt.Sprint("?limit=", limit, "&")
		}
		seen, cursor, last, pages := map[string]bool{}, "", "o", 0
		for {
			page := s.Call(http.MethodGet, system.InboxPath+query+"cursor="+cursor, alice, "")
			system.WantStatus(t, page, http.StatusOK)
			pages++
			list := page.JSON(t)["notifications"].([]any)
			for _, entry := range list {
				n := entry.(map[string]any)
				id := n["notification_id"].(string)
				if seen[id] || id >= last || n["payload"].(map[string]any)["user_id"] != user {
					t.Fatalf("limit %d: %v comes after %s", limit, n, last)
				}
				if len(seen) == 0 && (n["status"] != "PENDING" || n["sent_at"] != nil) {
					t.Errorf("the newest is %v, want PENDING", n)
				}
				seen[id], last = true, id
			}
			more := false
			if cursor, more = page.JSON(t)["next_cursor"].(string); !more {
				break
			}
			if want := max(limit, 1); limit > 0 && len(list) != want || limit == 0 && len(list) != 100 {
				t.Fatalf("limit %d: a page has %d notifications", limit, len(list))
			}
		}
		if want := (mine + 1 + max(limit, 1) - 1) / max(limit, 1); len(seen) != mine+1 || limit > 0 && pages != want || limit == 0 && pages != 2 {
			t.Errorf("limit %d: %d of %d notifications on %d pages", limit, len(seen), mine+1, pages)
		}
	}
	if list := s.Call(http.MethodGet, system.InboxPath, bob, "").JSON(t)["notifications"].([]any); len(list) != others {
		t.Errorf("bob has %d notifications, want %d", len(list), others)
	}
	empty := s.Call(http.MethodGet, system.InboxPath, carol, "")
	if got := strings.TrimSpace(string(empty.Body)); empty.Status != http.StatusOK || got != `{"notifications":[]}` {
		t.Errorf("an empty inbox is answered %d %s", empty.Status, got)
	}
	// A cursor is a position, not a permission: with another user's, callers read their
	// own.
	page := s.Call(http.MethodGet, system.InboxPath+"?limit=1", alice, "").JSON(t)
	for _, entry := range s.Call(http.MethodGet, system.InboxPath+"?cursor="+page["next_cursor"].(string), bob, "").JSON(t)["notifications"].([]any) {
		if entry.(map[string]any)["payload"].(map[string]any)["user_id"] != other {
			t.Errorf("bob reads %v", entry)
		}
	}
	for query, code := range map[string]string{
		"limit=0": "request_invalid", "limit=101": "request_invalid", "limit=-1": "request_invalid", "limit=x": "request_invalid",
		"limit=1&limit=2": "request_invalid", "user_id=" + user: "request_invalid",
	} {
		system.WantProblem(t, s.Call(http.MethodGet, system.InboxPath+"?"+query, alice, ""), http.StatusUnprocessableEntity, code)
	}
	for _, cursor := range []string{"x", "!", "AAAA", page["next_cursor"].(string) + "A", strings.Repeat("A", 512)} {
		system.WantProblem(t, s.Call(http.MethodGet, system.InboxPath+"?cursor="+cursor, alice, ""), http.StatusBadRequest, "cursor_invalid")
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.InboxPath, "", ""), http.StatusUnauthorized, "token_missing")
}

// A notification is marked read once; another user's does not exist.
func TestMarkRead(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	user := s.UserID(alice)
	s.UserID(bob)
	s.Grant("k1", user, "item1")
	s.Grant("k2", user, "item2")
	s.DeliverAll()
	list := s.Call(http.MethodGet, system.InboxPath, alice, "").JSON(t)["notifications"].([]any)
	first, second := list[0].(map[string]any), list[1].(map[string]any)
	id := first["notification_id"].(string)
	read := func(id, token string, headers ...string) system.Answer {
		t.Helper()
		return s.Call(http.MethodPost, system.InboxPath+"/"+id+"/read", token, "", headers...)
	}
	const readers = 64
	at := make([]string, readers)
	system.AtOnce(readers, func(i int) {
		a := read(id, alice)
		if a.Status != http.StatusOK {
			t.Errorf("answered %d %s, want 200", a.Status, a.Body)
			return
		}
		at[i] = fmt.Sprint(a.JSON(t)["read_at"])
	})
	slices.Sort(at)
	if at = slices.Compact(at); len(at) != 1 || !strings.HasSuffix(at[0], "Z") {
		t.Errorf("read_at is %q, want one time in UTC", at)
	}
	again := read(id, alice).JSON(t)
	if again["read_at"] != at[0] {
		t.Errorf("read_at was %s and is %s", at[0], again["read_at"])
	}
	for name, value := range first { // nothing else changes
		if name != "read_at" && fmt.Sprint(again[name]) != fmt.Sprint(value) {
			t.Errorf("%s was %v and is %v", name, value, again[name])
		}
	}
	list = s.Call(http.MethodGet, system.InboxPath, alice, "").JSON(t)["notifications"].([]any)
	if list[0].(map[string]any)["read_at"] != at[0] || list[1].(map[string]any)["read_at"] != nil {
		t.Errorf("the inbox has %v, want only the first read", list)
	}

	unread := second["notification_id"].(string)
	unknown := "n_01m7y3xjwkf7z87rfbyybg9mk2"
	missing := read(unknown, alice)
	system.WantProblem(t, missing, http.StatusNotFound, "notification_not_found")
	for name, a := range map[string]system.Answer{"another's": read(unread, bob), "an operator's": read(unread, people.Token(t, map[string]any{"sub": "ops"}))} {
		if a.Status != http.StatusNotFound || string(a.Body) != string(missing.Body) {
			t.Errorf("%s: answered %d %s, but an unknown one %s", name, a.Status, a.Body, missing.Body)
		}
	}
	for _, malformed := range []string{"x", "n_", "n_x", strings.ToUpper(unread), "u" + unread[1:], unread[2:], unread + "0", first["event_id"].(string), "%20" + unread, "%F0%9F%92%A5"} {
		if a := read(malformed, alice); a.Status != http.StatusNotFound || string(a.Body) != string(missing.Body) {
			t.Errorf("%q: answered %d %s, want that of an unknown one", malformed, a.Status, a.Body)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE read_at IS NOT NULL`); n != 1 {
		t.Errorf("%d notifications are read, want 1", n)
	}
	system.WantProblem(t, read(unread, ""), http.StatusUnauthorized, "token_missing")
	// A write by cookie must come from our own pages; this session does not exist either.
	system.WantProblem(t, read(unread, "", "Cookie: miniserver_session=x"), http.StatusUnauthorized, "session_missing")
}
