package api_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// skus reads a whole list page by page.
func skus(s *system.System, path, limit string) (pages [][]string) {
	s.T.Helper()
	cursor := ""
	for range 1000 {
		a := s.Call(http.MethodGet, path+"?limit="+limit+"&cursor="+url.QueryEscape(cursor), s.Writer, "")
		system.WantStatus(s.T, a, http.StatusOK)
		body := a.JSON(s.T)
		var page []string
		for _, e := range body["entitlements"].([]any) {
			page = append(page, e.(map[string]any)["stock_keeping_unit"].(string))
		}
		pages = append(pages, page)
		next, more := body["next_cursor"].(string)
		if !more {
			return pages
		}
		if next == "" || next == cursor {
			s.T.Fatalf("the cursor %q follows %q", next, cursor)
		}
		cursor = next
	}
	s.T.Fatal("the list does not end")
	return nil
}

// A list comes in pages of at most 100, each item once, in one order.
func TestListPages(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const items = 150
	want := make([]string, items)
	for i := range want {
		want[i] = fmt.Sprintf("item %03d/é", i)
	}
	// Added in another order than the list's.
	system.AtOnce(items, func(i int) { s.Grant(fmt.Sprint("k", i), "u_1", want[items-1-i]) })
	s.Grant("other", "u_2", "item 000/é")

	path := "/v1/users/u_1/entitlements"
	first := s.Call(http.MethodGet, path, s.Writer, "").JSON(t)
	if n := len(first["entitlements"].([]any)); n != 100 || first["next_cursor"] == nil || first["user_id"] != "u_1" {
		t.Fatalf("a page without a limit has %d items and the cursor %v, want 100 and one", n, first["next_cursor"])
	}
	for limit, sizes := range map[string][]int{"100": {100, 50}, "75": {75, 75}, "50": {50, 50, 50}} {
		pages := skus(s, path, limit)
		var all []string
		for i, page := range pages {
			if i >= len(sizes) || len(page) != sizes[i] {
				t.Errorf("limit %s: page %d has %d items, want pages of %v", limit, i, len(page), sizes)
			}
			all = append(all, page...)
		}
		// The last page has no cursor even if it is full: no client reads an empty page.
		if len(pages) != len(sizes) {
			t.Errorf("limit %s: %d pages, want %d", limit, len(pages), len(sizes))
		}
		if slices.Sort(all); !slices.Equal(all, want) {
			t.Errorf("limit %s: the pages do not have each item once", limit)
		}
	}
}

// Items added while a client pages do not hide those that were there.
func TestListWhileItGrows(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for _, item := range []string{"b", "d", "f"} {
		s.Grant("k"+item, "u_1", item)
	}
	page := s.Call(http.MethodGet, "/v1/users/u_1/entitlements?limit=2", s.Writer, "").JSON(t)
	s.Grant("ka", "u_1", "a")
	s.Grant("ke", "u_1", "e")
	s.Revoke("kd", "u_1", "d")
	rest := s.Call(http.MethodGet, "/v1/users/u_1/entitlements?cursor="+page["next_cursor"].(string), s.Writer, "").JSON(t)["entitlements"].([]any)
	if len(rest) != 2 || rest[0].(map[string]any)["stock_keeping_unit"] != "e" || rest[1].(map[string]any)["stock_keeping_unit"] != "f" {
		t.Errorf("the rest is %v, want e and f", rest)
	}
}

func TestBadPage(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	s.Grant("k1", "u_1", "item1")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	lists := map[string]string{
		"list": "/v1/users/u_1/entitlements", "history": "/v1/users/u_1/entitlements/item1/history", "inbox": "/debug/notification/inbox/u_1",
	}
	for name, path := range lists {
		for _, test := range []struct {
			query  string
			status int
		}{
			{"limit=0", 422},
			{"limit=101", 422},
			{"limit=-1", 422},
			{"limit=abc", 422},
			{"limit=1.5", 422},
			{"limit=1e1", 422},
			{"limit=99999999999999999999", 422},
			{"limit=%201", 422},
			{"limit=0x10", 422},
			{"cursor=!!!", 400},
			{"cursor=a", 400},
			{"cursor=%20", 400},
			{"cursor=YWJj%3D", 400},
			// These decode to what no list issued, and to what Postgres refuses.
			{"cursor=" + encode("\xff\xfe"), 400},
			{"cursor=" + encode("a\x00b"), 400},
			{"cursor=" + encode("a\xffbcdefghijklmno"), 0},
		} {
			t.Run(name+" "+test.query, func(t *testing.T) {
				a := s.In(t).Call(http.MethodGet, path+"?"+test.query, s.Operator, "")
				if test.status == 0 {
					if a.Status >= 500 {
						t.Errorf("answered %d %s, want 4xx", a.Status, a.Body)
					}
					return
				}
				system.WantProblem(t, a, test.status, "")
			})
		}
	}
	// A cursor of one list is not valid in another.
	system.WantProblem(t, s.Call(http.MethodGet, lists["history"]+"?cursor="+encode("item1"), s.Operator, ""), http.StatusBadRequest, "cursor_invalid")
	system.WantProblem(t, s.Call(http.MethodGet, lists["inbox"]+"?cursor="+encode("item1"), s.Operator, ""), http.StatusBadRequest, "cursor_invalid")
}

// An unknown user's list is empty, and not null.
func TestUnknownUser(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	a := s.Call(http.MethodGet, "/v1/users/nobody/entitlements", s.Writer, "")
	if a.Status != http.StatusOK || string(a.Body) != `{"user_id":"nobody","entitlements":[]}`+"\n" && string(a.Body) != `{"user_id":"nobody","entitlements":[]}` {
		t.Errorf("an unknown user's list is answered %d %s", a.Status, a.Body)
	}
	system.WantProblem(t, s.Call(http.MethodGet, "/v1/users/nobody/entitlements/item1", s.Writer, ""), http.StatusNotFound, "entitlement_not_found")
	history := s.Call(http.MethodGet, "/v1/users/nobody/entitlements/item1/history", s.Operator, "")
	if history.Status != http.StatusOK || len(history.JSON(t)["changes"].([]any)) != 0 {
		t.Errorf("an unknown user's history is answered %d %s", history.Status, history.Body)
	}
}

// A read shows what the write answered, to the microsecond.
func TestReadAfterWrite(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	s.Grant("k1", "u_1", "item1")
	written := s.Revoke("k2", "u_1", "item1")
	read := s.Call(http.MethodGet, "/v1/users/u_1/entitlements/item1", s.Writer, "")
	system.WantStatus(t, read, http.StatusOK)
	if read.Header.Get("ETag") != `"2"` || read.Header.Get("ETag") != written.Header.Get("ETag") {
		t.Errorf("the read has the ETag %s, want \"2\"", read.Header.Get("ETag"))
	}
	w, r := written.JSON(t), read.JSON(t)
	for _, field := range []string{"user_id", "stock_keeping_unit", "status", "version"} {
		if w[field] != r[field] {
			t.Errorf("%s: written %v, read %v", field, w[field], r[field])
		}
	}
	wantSameTime(t, w["updated_at"], r["updated_at"])
	for name, a := range map[string]system.Answer{
		"write": written, "read": read, "replay": s.Revoke("k2", "u_1", "item1"),
		"list":      s.Call(http.MethodGet, "/v1/users/u_1/entitlements", s.Writer, ""),
		"history":   s.Call(http.MethodGet, "/v1/users/u_1/entitlements/item1/history", s.Operator, ""),
		"inbox":     s.Call(http.MethodGet, "/debug/notification/inbox/u_1", s.Operator, ""),
		"event":     s.Binary(system.Purchase("completed", "e1", "u_1", "item1", "p_1")),
		"not there": s.Call(http.MethodGet, "/v1/users/u_1/entitlements/none", s.Writer, ""),
		"refused":   s.Call(http.MethodGet, "/v1/users/u_1/entitlements/item1", "", ""),
		"no route":  s.Call(http.MethodGet, "/none", "", ""),
	} {
		for header, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
			if got := a.Header.Values(header); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		if got := a.Header.Values("Content-Type"); len(got) != 1 {
			t.Errorf("%s: Content-Type is %q, want one", name, got)
		}
	}
}

// The history shows every change and its caller, newest first, to operators only.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const changes = 120
	for i := range changes {
		if i%2 == 0 {
			s.Grant(fmt.Sprint("k", i), "u_1", "item1")
		} else {
			s.Revoke(fmt.Sprint("k", i), "u_1", "item1")
		}
	}
	s.Grant("k0", "u_1", "item1") // a replay, which is no change
	s.Grant("other", "u_1", "item2")
	path := "/v1/users/u_1/entitlements/item1/history"
	system.WantProblem(t, s.Call(http.MethodGet, path, s.Writer, ""), http.StatusForbidden, "role_missing")

	want, cursor := changes, ""
	for _, size := range []int{100, 20} {
		page := s.Call(http.MethodGet, path+"?cursor="+cursor, s.Operator, "").JSON(t)
		list := page["changes"].([]any)
		if len(list) != size {
			t.Fatalf("a page has %d changes, want %d", len(list), size)
		}
		for _, entry := range list {
			change := entry.(map[string]any)
			operation, status, reason := "grant", "ACTIVE", "purchase"
			if want%2 == 0 {
				operation, status, reason = "revoke", "REVOKED", "refund"
			}
			if change["version"] != float64(want) || change["operation"] != operation || change["status"] != status ||
				change["reason"] != reason || change["purchase_id"] != fmt.Sprint("p_k", want-1) || change["caller"] == "" || change["event_id"] == "" {
				t.Fatalf("the change to version %d is %v", want, change)
			}
			want--
		}
		cursor, _ = page["next_cursor"].(string)
	}
	if cursor != "" || want != 0 {
		t.Errorf("%d versions are missing, and the last cursor is %q", want, cursor)
	}
}

// Ids are opaque: a read finds what a write accepted, however its path escapes the id.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for i, odd := range []string{"a/b", "a b", "日本語", "🎁", "100%", "%2F", "a+b", "a&b=c", "a?b", "a#b", "..", ".", `"\`, "a;b", "//", "a:b@c", "{user_id}", "item1/history", "'"} {
		escaped := ""
		for _, b := range []byte(odd) {
			escaped += fmt.Sprintf("%%%02X", b)
		}
		for _, form := range []string{escaped, url.PathEscape(odd)} {
			if form == "." || form == ".." {
				continue // part of a path's syntax; clients must escape them
			}
			s.Grant(fmt.Sprint("u", i), odd, "item1")
			s.Grant(fmt.Sprint("i", i), "u_odd", odd)
			list := s.Call(http.MethodGet, "/v1/users/"+form+"/entitlements", s.Writer, "")
			if list.Status != http.StatusOK || list.JSON(t)["user_id"] != odd || len(list.JSON(t)["entitlements"].([]any)) != 1 {
				t.Errorf("%q as %s: answered %d %s", odd, form, list.Status, list.Body)
			}
			one := s.Call(http.MethodGet, "/v1/users/u_odd/entitlements/"+form, s.Writer, "")
			if one.Status != http.StatusOK || one.JSON(t)["stock_keeping_unit"] != odd {
				t.Errorf("%q as %s: answered %d %s", odd, form, one.Status, one.Body)
			}
			history := s.Call(http.MethodGet, "/v1/users/u_odd/entitlements/"+form+"/history", s.Operator, "")
			if history.Status != http.StatusOK || len(history.JSON(t)["changes"].([]any)) != 1 {
				t.Errorf("the history of %q as %s: answered %d %s", odd, form, history.Status, history.Body)
			}
		}
	}
}

// Lists never mix users, even if one id is a prefix of another.
func TestListIsOneUsers(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for i, user := range []string{"u", "u_", "u_1", "u_11", "U_1", "u%1"} {
		s.Grant(fmt.Sprint("k", i), user, "of "+user)
	}
	for _, user := range []string{"u", "u_1", "U_1", "u%1"} {
		pages := skus(s, "/v1/users/"+url.PathEscape(user)+"/entitlements", "100")
		if len(pages) != 1 || !slices.Equal(pages[0], []string{"of " + user}) {
			t.Errorf("the list of %s is %q", user, pages)
		}
	}
}
