package functions_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// skus reads a whole list page by page.
func (s *system) skus(path, limit string) (pages [][]string) {
	s.t.Helper()
	cursor := ""
	for range 1000 {
		a := s.call(http.MethodGet, path+"?limit="+limit+"&cursor="+url.QueryEscape(cursor), s.writer, "")
		wantStatus(s.t, a, http.StatusOK)
		body := a.json(s.t)
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
			s.t.Fatalf("cursor %q after %q", next, cursor)
		}
		cursor = next
	}
	s.t.Fatal("the list does not end")
	return nil
}

// A list comes in pages of 100 at most, each item once, in one order.
func TestListPages(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	const items = 150
	want := make([]string, items)
	for i := range want {
		want[i] = fmt.Sprintf("item %03d/é", i)
	}
	// In another order than the list's.
	atOnce(items, func(i int) { s.grant(fmt.Sprint("k", i), "u_1", want[items-1-i]) })
	s.grant("other", "u_2", "item 000/é")

	path := "/v1/users/u_1/entitlements"
	first := s.call(http.MethodGet, path, s.writer, "").json(t)
	if n := len(first["entitlements"].([]any)); n != 100 || first["next_cursor"] == nil || first["user_id"] != "u_1" {
		t.Fatalf("%d without a limit, %v", n, first["next_cursor"])
	}
	for limit, sizes := range map[string][]int{"100": {100, 50}, "75": {75, 75}, "50": {50, 50, 50}} {
		pages := s.skus(path, limit)
		var all []string
		for i, page := range pages {
			if i >= len(sizes) || len(page) != sizes[i] {
				t.Errorf("limit %s: page %d has %d", limit, i, len(page))
			}
			all = append(all, page...)
		}
		// A page that is full and last has no cursor: nobody reads an empty page.
		if len(pages) != len(sizes) {
			t.Errorf("limit %s: %d pages", limit, len(pages))
		}
		if slices.Sort(all); !slices.Equal(all, want) {
			t.Errorf("limit %s: not each item once", limit)
		}
	}
}

// What is added while somebody pages does not make them miss what was there.
func TestListWhileItGrows(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for _, item := range []string{"b", "d", "f"} {
		s.grant("k"+item, "u_1", item)
	}
	page := s.call(http.MethodGet, "/v1/users/u_1/entitlements?limit=2", s.writer, "").json(t)
	s.grant("ka", "u_1", "a")
	s.grant("ke", "u_1", "e")
	s.revoke("kd", "u_1", "d")
	rest := s.call(http.MethodGet, "/v1/users/u_1/entitlements?cursor="+page["next_cursor"].(string), s.writer, "").json(t)["entitlements"].([]any)
	if len(rest) != 2 || rest[0].(map[string]any)["stock_keeping_unit"] != "e" || rest[1].(map[string]any)["stock_keeping_unit"] != "f" {
		t.Errorf("the rest: %v", rest)
	}
}

func TestBadPage(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	s.grant("k1", "u_1", "item1")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	lists := map[string]string{
		"list": "/v1/users/u_1/entitlements", "history": "/v1/users/u_1/entitlements/item1/history", "inbox": "/debug/notification/inbox/u_1",
	}
	for name, path := range lists {
		for _, test := range []struct {
			query  string
			status int
		}{
			{"limit=0", 422}, {"limit=101", 422}, {"limit=-1", 422}, {"limit=abc", 422}, {"limit=1.5", 422}, {"limit=1e1", 422},
			{"limit=99999999999999999999", 422}, {"limit=%201", 422}, {"limit=0x10", 422},
			{"cursor=!!!", 400}, {"cursor=a", 400}, {"cursor=%20", 400}, {"cursor=YWJj%3D", 400},
			// These decode to what no list gave out, and what Postgres refuses.
			{"cursor=" + encode("\xff\xfe"), 400}, {"cursor=" + encode("a\x00b"), 400},
			{"cursor=" + encode("a\xffbcdefghijklmno"), 0},
		} {
			t.Run(name+" "+test.query, func(t *testing.T) {
				a := s.in(t).call(http.MethodGet, path+"?"+test.query, s.ops, "")
				if test.status == 0 {
					if a.status >= 500 {
						t.Errorf("%d %s", a.status, a.body)
					}
					return
				}
				wantProblem(t, a, test.status, "")
			})
		}
	}
	// One list's cursor is not another's.
	wantProblem(t, s.call(http.MethodGet, lists["history"]+"?cursor="+encode("item1"), s.ops, ""), http.StatusBadRequest, "cursor_invalid")
	wantProblem(t, s.call(http.MethodGet, lists["inbox"]+"?cursor="+encode("item1"), s.ops, ""), http.StatusBadRequest, "cursor_invalid")
}

// Of whom nothing is known, the list is empty, and not null.
func TestUnknownUser(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	a := s.call(http.MethodGet, "/v1/users/nobody/entitlements", s.writer, "")
	if a.status != http.StatusOK || string(a.body) != `{"user_id":"nobody","entitlements":[]}`+"\n" && string(a.body) != `{"user_id":"nobody","entitlements":[]}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, s.call(http.MethodGet, "/v1/users/nobody/entitlements/item1", s.writer, ""), http.StatusNotFound, "entitlement_not_found")
	history := s.call(http.MethodGet, "/v1/users/nobody/entitlements/item1/history", s.ops, "")
	if history.status != http.StatusOK || len(history.json(t)["changes"].([]any)) != 0 {
		t.Errorf("history: %d %s", history.status, history.body)
	}
}

// What a write answered is what a read shows, to the microsecond.
func TestReadAfterWrite(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	s.grant("k1", "u_1", "item1")
	written := s.revoke("k2", "u_1", "item1")
	read := s.call(http.MethodGet, "/v1/users/u_1/entitlements/item1", s.writer, "")
	wantStatus(t, read, http.StatusOK)
	if read.header.Get("ETag") != `"2"` || read.header.Get("ETag") != written.header.Get("ETag") {
		t.Errorf("ETag %s", read.header.Get("ETag"))
	}
	w, r := written.json(t), read.json(t)
	for _, field := range []string{"user_id", "stock_keeping_unit", "status", "version"} {
		if w[field] != r[field] {
			t.Errorf("%s: written %v, read %v", field, w[field], r[field])
		}
	}
	wantSameTime(t, w["updated_at"], r["updated_at"])
	for name, a := range map[string]answer{
		"write": written, "read": read, "replay": s.revoke("k2", "u_1", "item1"),
		"list":      s.call(http.MethodGet, "/v1/users/u_1/entitlements", s.writer, ""),
		"history":   s.call(http.MethodGet, "/v1/users/u_1/entitlements/item1/history", s.ops, ""),
		"inbox":     s.call(http.MethodGet, "/debug/notification/inbox/u_1", s.ops, ""),
		"event":     s.binary(purchase("completed", "e1", "u_1", "item1", "p_1")),
		"not there": s.call(http.MethodGet, "/v1/users/u_1/entitlements/none", s.writer, ""),
		"refused":   s.call(http.MethodGet, "/v1/users/u_1/entitlements/item1", "", ""),
		"no route":  s.call(http.MethodGet, "/none", "", ""),
	} {
		for header, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
			if got := a.header.Values(header); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s %q", name, header, got)
			}
		}
		if got := a.header.Values("Content-Type"); len(got) != 1 {
			t.Errorf("%s: Content-Type %q", name, got)
		}
	}
}

// The history shows every change, newest first, and who asked for it. It is for
// operators only.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	const changes = 120
	for i := range changes {
		if i%2 == 0 {
			s.grant(fmt.Sprint("k", i), "u_1", "item1")
		} else {
			s.revoke(fmt.Sprint("k", i), "u_1", "item1")
		}
	}
	s.grant("k0", "u_1", "item1") // a replay is no change
	s.grant("other", "u_1", "item2")
	path := "/v1/users/u_1/entitlements/item1/history"
	wantProblem(t, s.call(http.MethodGet, path, s.writer, ""), http.StatusForbidden, "role_missing")

	want, cursor := changes, ""
	for _, size := range []int{100, 20} {
		page := s.call(http.MethodGet, path+"?cursor="+cursor, s.ops, "").json(t)
		list := page["changes"].([]any)
		if len(list) != size {
			t.Fatalf("a page of %d, want %d", len(list), size)
		}
		for _, entry := range list {
			change := entry.(map[string]any)
			operation, status, reason := "grant", "ACTIVE", "purchase"
			if want%2 == 0 {
				operation, status, reason = "revoke", "REVOKED", "refund"
			}
			if change["version"] != float64(want) || change["operation"] != operation || change["status"] != status ||
				change["reason"] != reason || change["purchase_id"] != fmt.Sprint("p_k", want-1) || change["caller"] == "" || change["event_id"] == "" {
				t.Fatalf("version %d: %v", want, change)
			}
			want--
		}
		cursor, _ = page["next_cursor"].(string)
	}
	if cursor != "" || want != 0 {
		t.Errorf("left: %d, cursor %q", want, cursor)
	}
}

// Ids are opaque: what a write takes, a read finds, through any escaping.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for i, odd := range []string{"a/b", "a b", "日本語", "🎁", "100%", "%2F", "a+b", "a&b=c", "a?b", "a#b", "..", ".", `"\`, "a;b", "//", "a:b@c", "{user_id}", "item1/history", "'"} {
		escaped := ""
		for _, b := range []byte(odd) {
			escaped += fmt.Sprintf("%%%02X", b)
		}
		for _, form := range []string{escaped, url.PathEscape(odd)} {
			if form == "." || form == ".." {
				continue // a path's own; clients must escape them
			}
			s.grant(fmt.Sprint("u", i), odd, "item1")
			s.grant(fmt.Sprint("i", i), "u_odd", odd)
			list := s.call(http.MethodGet, "/v1/users/"+form+"/entitlements", s.writer, "")
			if list.status != http.StatusOK || list.json(t)["user_id"] != odd || len(list.json(t)["entitlements"].([]any)) != 1 {
				t.Errorf("%q as %s: %d %s", odd, form, list.status, list.body)
			}
			one := s.call(http.MethodGet, "/v1/users/u_odd/entitlements/"+form, s.writer, "")
			if one.status != http.StatusOK || one.json(t)["stock_keeping_unit"] != odd {
				t.Errorf("%q as %s: %d %s", odd, form, one.status, one.body)
			}
			history := s.call(http.MethodGet, "/v1/users/u_odd/entitlements/"+form+"/history", s.ops, "")
			if history.status != http.StatusOK || len(history.json(t)["changes"].([]any)) != 1 {
				t.Errorf("history of %q as %s: %d %s", odd, form, history.status, history.body)
			}
		}
	}
}

// Lists never mix users, even where one id begins like another.
func TestListIsOneUsers(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for i, user := range []string{"u", "u_", "u_1", "u_11", "U_1", "u%1"} {
		s.grant(fmt.Sprint("k", i), user, "of "+user)
	}
	for _, user := range []string{"u", "u_1", "U_1", "u%1"} {
		pages := s.skus("/v1/users/"+url.PathEscape(user)+"/entitlements", "100")
		if len(pages) != 1 || !slices.Equal(pages[0], []string{"of " + user}) {
			t.Errorf("%s: %q", user, pages)
		}
	}
}
