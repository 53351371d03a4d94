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
			s.T.Fatalf("cursor %q after %q", next, cursor)
		}
		cursor = next
	}
	s.T.Fatal("the list does not end")
	return nil
}

// A list comes in pages of 100 at most, each item once, in one order.
func TestListPages(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const items = 150
	want := make([]string, items)
	for i := range want {
		want[i] = fmt.Sprintf("item %03d/é", i)
	}
	// In another order than the list's.
	system.AtOnce(items, func(i int) { s.Grant(fmt.Sprint("k", i), "u_1", want[items-1-i]) })
	s.Grant("other", "u_2", "item 000/é")

	path := "/v1/users/u_1/entitlements"
	first := s.Call(http.MethodGet, path, s.Writer, "").JSON(t)
	if n := len(first["entitlements"].([]any)); n != 100 || first["next_cursor"] == nil || first["user_id"] != "u_1" {
		t.Fatalf("%d without a limit, %v", n, first["next_cursor"])
	}
	for limit, sizes := range map[string][]int{"100": {100, 50}, "75": {75, 75}, "50": {50, 50, 50}} {
		pages := skus(s, path, limit)
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
		t.Errorf("the rest: %v", rest)
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
			// These decode to what no list gave out, and what Postgres refuses.
			{"cursor=" + encode("\xff\xfe"), 400},
			{"cursor=" + encode("a\x00b"), 400},
			{"cursor=" + encode("a\xffbcdefghijklmno"), 0},
		} {
			t.Run(name+" "+test.query, func(t *testing.T) {
				a := s.In(t).Call(http.MethodGet, path+"?"+test.query, s.Operator, "")
				if test.status == 0 {
					if a.Status >= 500 {
						t.Errorf("this should not be answered %d %s", a.Status, a.Body)
					}
					return
				}
				system.WantProblem(t, a, test.status, "")
			})
		}
	}
	// One list's cursor is not another's.
	system.WantProblem(t, s.Call(http.MethodGet, lists["history"]+"?cursor="+encode("item1"), s.Operator, ""), http.StatusBadRequest, "cursor_invalid")
	system.WantProblem(t, s.Call(http.MethodGet, lists["inbox"]+"?cursor="+encode("item1"), s.Operator, ""), http.StatusBadRequest, "cursor_invalid")
}

// Of whom nothing is known, the list is empty, and not null.
func TestUnknownUser(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	a := s.Call(http.MethodGet, "/v1/users/nobody/entitlements", s.Writer, "")
	if a.Status != http.StatusOK || string(a.Body) != `{"user_id":"nobody","entitlements":[]}`+"\n" && string(a.Body) != `{"user_id":"nobody","entitlements":[]}` {
		t.Errorf("this should not be answered %d %s", a.Status, a.Body)
	}
	system.WantProblem(t, s.Call(http.MethodGet, "/v1/users/nobody/entitlements/item1", s.Writer, ""), http.StatusNotFound, "entitlement_not_found")
	history := s.Call(http.MethodGet, "/v1/users/nobody/entitlements/item1/history", s.Operator, "")
	if history.Status != http.StatusOK || len(history.JSON(t)["changes"].([]any)) != 0 {
		t.Errorf("history: %d %s", history.Status, history.Body)
	}
}

// What a write answered is what a read shows, to the microsecond.
func TestReadAfterWrite(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	s.Grant("k1", "u_1", "item1")
	written := s.Revoke("k2", "u_1", "item1")
	read := s.Call(http.MethodGet, "/v1/users/u_1/entitlements/item1", s.Writer, "")
	system.WantStatus(t, read, http.StatusOK)
	if read.Header.Get("ETag") != `"2"` || read.Header.Get("ETag") != written.Header.Get("ETag") {
		t.Errorf("ETag %s", read.Header.Get("ETag"))
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
				t.Errorf("%s: %s %q", name, header, got)
			}
		}
		if got := a.Header.Values("Content-Type"); len(got) != 1 {
			t.Errorf("%s: Content-Type %q", name, got)
		}
	}
}

// The history shows every change, newest first, and who asked for it. It is for
// operators only.
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
	s.Grant("k0", "u_1", "item1") // a replay is no change
	s.Grant("other", "u_1", "item2")
	path := "/v1/users/u_1/entitlements/item1/history"
	system.WantProblem(t, s.Call(http.MethodGet, path, s.Writer, ""), http.StatusForbidden, "role_missing")

	want, cursor := changes, ""
	for _, size := range []int{100, 20} {
		page := s.Call(http.MethodGet, path+"?cursor="+cursor, s.Operator, "").JSON(t)
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
	s := system.Start(t, "WAKES=false")
	for i, odd := range []string{"a/b", "a b", "日本語", "🎁", "100%", "%2F", "a+b", "a&b=c", "a?b", "a#b", "..", ".", `"\`, "a;b", "//", "a:b@c", "{user_id}", "item1/history", "'"} {
		escaped := ""
		for _, b := range []byte(odd) {
			escaped += fmt.Sprintf("%%%02X", b)
		}
		for _, form := range []string{escaped, url.PathEscape(odd)} {
			if form == "." || form == ".." {
				continue // a path's own; clients must escape them
			}
			s.Grant(fmt.Sprint("u", i), odd, "item1")
			s.Grant(fmt.Sprint("i", i), "u_odd", odd)
			list := s.Call(http.MethodGet, "/v1/users/"+form+"/entitlements", s.Writer, "")
			if list.Status != http.StatusOK || list.JSON(t)["user_id"] != odd || len(list.JSON(t)["entitlements"].([]any)) != 1 {
				t.Errorf("%q as %s: %d %s", odd, form, list.Status, list.Body)
			}
			one := s.Call(http.MethodGet, "/v1/users/u_odd/entitlements/"+form, s.Writer, "")
			if one.Status != http.StatusOK || one.JSON(t)["stock_keeping_unit"] != odd {
				t.Errorf("%q as %s: %d %s", odd, form, one.Status, one.Body)
			}
			history := s.Call(http.MethodGet, "/v1/users/u_odd/entitlements/"+form+"/history", s.Operator, "")
			if history.Status != http.StatusOK || len(history.JSON(t)["changes"].([]any)) != 1 {
				t.Errorf("history of %q as %s: %d %s", odd, form, history.Status, history.Body)
			}
		}
	}
}

// Lists never mix users, even where one id begins like another.
func TestListIsOneUsers(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for i, user := range []string{"u", "u_", "u_1", "u_11", "U_1", "u%1"} {
		s.Grant(fmt.Sprint("k", i), user, "of "+user)
	}
	for _, user := range []string{"u", "u_1", "U_1", "u%1"} {
		pages := skus(s, "/v1/users/"+url.PathEscape(user)+"/entitlements", "100")
		if len(pages) != 1 || !slices.Equal(pages[0], []string{"of " + user}) {
			t.Errorf("%s: %q", user, pages)
		}
	}
}
