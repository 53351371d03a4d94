package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

// The same request with the same key gets the first answer, byte for byte,
// however its JSON is written and whatever happened since.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for _, path := range []string{grantsPath, revokesPath} {
		t.Run(path, func(t *testing.T) {
			s := s.in(t)
			user := "u" + path[len("/v1/entitlements/"):]
			first := s.post(path, "k1", changeBody(user, "itém", "purchase", "p_1"))
			wantStatus(t, first, http.StatusOK)
			if first.header["Idempotent-Replayed"] != nil || first.header.Get("ETag") != `"1"` {
				t.Fatalf("first: %v", first.header)
			}
			if got := first.json(t); got["user_id"] != user || got["version"] != 1.0 || len(got) != 5 {
				t.Fatalf("first: %s", first.body)
			}
			// It moves on.
			wantStatus(t, s.grant("k2"+user, user, "itém"), http.StatusOK)
			wantStatus(t, s.revoke("k3"+user, user, "itém"), http.StatusOK)
			rows := s.rows()
			for _, body := range []string{
				changeBody(user, "itém", "purchase", "p_1"),
				fmt.Sprintf(`{"purchase_id":"p_1","reason":"purchase","stock_keeping_unit":"itém","user_id":%q}`, user),
				fmt.Sprintf("\n{\t\"user_id\" : %q ,\r\n \"stock_keeping_unit\":\"itém\",\"reason\":\"purchase\",\"purchase_id\":\"p_1\" } \n", user),
				fmt.Sprintf(`{"user_id":%q,"stock_keeping_unit":"it\u00e9m","re\u0061son":"purchase","purchase_id":"p\u005F1"}`, user),
			} {
				wantReplay(t, first, s.post(path, "k1", body))
			}
			if after := s.rows(); after != rows {
				t.Errorf("a replay left rows:\n%s\n%s", rows, after)
			}
		})
	}
}

// A key stands for one request: any other one with it is refused.
func TestReusedKey(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	wantStatus(t, s.post(grantsPath, "k1", changeBody("u_1", "item1", "purchase", "p_1")), http.StatusOK)
	wantStatus(t, s.post(grantsPath, "k2", changeBody("u_1", "item1", "purchase", "p_2"), `If-Match: "1"`), http.StatusOK)
	for _, test := range []struct {
		name, key, body string
		headers         []string
	}{
		{"other user", "k1", changeBody("u_2", "item1", "purchase", "p_1"), nil},
		{"other item", "k1", changeBody("u_1", "item2", "purchase", "p_1"), nil},
		{"other reason", "k1", changeBody("u_1", "item1", "gift", "p_1"), nil},
		{"other purchase", "k1", changeBody("u_1", "item1", "purchase", "p_2"), nil},
		{"values swapped", "k1", changeBody("item1", "u_1", "purchase", "p_1"), nil},
		{"with If-Match now", "k1", changeBody("u_1", "item1", "purchase", "p_1"), []string{`If-Match: "1"`}},
		{"with a matching If-Match now", "k1", changeBody("u_1", "item1", "purchase", "p_1"), []string{`If-Match: "2"`}},
		{"other If-Match", "k2", changeBody("u_1", "item1", "purchase", "p_2"), []string{`If-Match: "2"`}},
		{"If-Match left out", "k2", changeBody("u_1", "item1", "purchase", "p_2"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			s.untouched(func() {
				wantProblem(t, s.post(grantsPath, test.key, test.body, test.headers...), http.StatusConflict, "idempotency_key_reused")
			})
		})
	}
}

// A key belongs to one caller and one operation.
func TestKeyScope(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	body := changeBody("u_1", "item1", "purchase", "p_1")
	wantStatus(t, s.post(grantsPath, "k1", body), http.StatusOK)

	revoked := s.post(revokesPath, "k1", body)
	if revoked.status != http.StatusOK || revoked.json(t)["status"] != "REVOKED" || revoked.header["Idempotent-Replayed"] != nil {
		t.Fatalf("revoke with a grant's key: %d %s", revoked.status, revoked.body)
	}
	other := auth.Identity{Subject: "another-service", Roles: []string{auth.RoleEntitlementWriter}}
	theirs := s.as(other, "grant", http.MethodPost, grantsPath, body, "Idempotency-Key: k1")
	if theirs.status != http.StatusOK || theirs.header["Idempotent-Replayed"] != nil || theirs.header.Get("ETag") != `"3"` {
		t.Fatalf("another caller's key: %d %v %s", theirs.status, theirs.header, theirs.body)
	}
	// Nor does another body tell them that the key was used.
	third := auth.Identity{Subject: "third-service", Roles: []string{auth.RoleEntitlementWriter}}
	wantStatus(t, s.as(third, "grant", http.MethodPost, grantsPath, changeBody("u_9", "item9", "x", "y"), "Idempotency-Key: k1"), http.StatusOK)
	if n := s.count(`SELECT count(*) FROM entitlement.idempotency_keys WHERE idem_key = 'k1'`); n != 4 {
		t.Errorf("%d keys", n)
	}
}

// Whoever lost the role does not get the stored answer either.
func TestAuthoriseBeforeReplay(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	body := changeBody("u_1", "item1", "purchase", "p_1")
	writer := auth.Identity{Subject: "shop", Roles: []string{auth.RoleEntitlementWriter}}
	wantStatus(t, s.as(writer, "grant", http.MethodPost, grantsPath, body, "Idempotency-Key: k1"), http.StatusOK)
	demoted := auth.Identity{Subject: "shop", Roles: []string{auth.RolePlayer}}
	wantProblem(t, s.as(demoted, "grant", http.MethodPost, grantsPath, body, "Idempotency-Key: k1"), http.StatusForbidden, "role_missing")
}

// A key is forgotten after its time, and is then as good as new, for another
// request too.
func TestExpiredKey(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	if n := s.count(`SELECT count(*) FROM entitlement.idempotency_keys`); n != 0 {
		t.Fatal(n)
	}
	wantStatus(t, s.grant("k1", "u_1", "item1"), http.StatusOK)
	if n := s.count(`SELECT count(*) FROM entitlement.idempotency_keys WHERE expires_at BETWEEN now() + '23h59m' AND now() + '24h'`); n != 1 {
		t.Error("the key is not kept for 24 hours")
	}
	expire := func() {
		_, err := s.pool.Exec(context.Background(), `UPDATE entitlement.idempotency_keys SET expires_at = now() - interval '1 second'`)
		must(t, err)
	}
	expire()
	again := s.grant("k1", "u_1", "item1")
	if again.status != http.StatusOK || again.header["Idempotent-Replayed"] != nil || again.header.Get("ETag") != `"2"` {
		t.Fatalf("same request: %d %v %s", again.status, again.header, again.body)
	}
	wantReplay(t, again, s.grant("k1", "u_1", "item1"))
	expire()
	other := s.grant("k1", "u_2", "item2")
	if other.status != http.StatusOK || other.header["Idempotent-Replayed"] != nil || other.header.Get("ETag") != `"1"` {
		t.Fatalf("other request: %d %v %s", other.status, other.header, other.body)
	}
	expire()
	// An expired key does not save a request from its If-Match.
	wantProblem(t, s.grant("k1", "u_2", "item2", `If-Match: "7"`), http.StatusPreconditionFailed, "version_mismatch")
}

// A retry gets its answer even though the version has moved on, by itself.
func TestReplayWinsOverIfMatch(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	wantStatus(t, s.grant("k1", "u_1", "item1"), http.StatusOK)
	first := s.revoke("k2", "u_1", "item1", `If-Match: "1"`)
	wantStatus(t, first, http.StatusOK)
	wantReplay(t, first, s.revoke("k2", "u_1", "item1", `If-Match: "1"`))
	wantReplay(t, first, s.revoke("k2", "u_1", "item1", `If-Match: 1`))
}

// 412 is not stored: the key can be used for the request that follows.
func TestMismatchIsNotStored(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	wantStatus(t, s.grant("k1", "u_1", "item1"), http.StatusOK)
	wantProblem(t, s.grant("k2", "u_1", "item1", `If-Match: "2"`), http.StatusPreconditionFailed, "version_mismatch")
	wantStatus(t, s.grant("k3", "u_1", "item1"), http.StatusOK)
	a := s.grant("k2", "u_1", "item1", `If-Match: "2"`)
	if a.status != http.StatusOK || a.header["Idempotent-Replayed"] != nil || a.header.Get("ETag") != `"3"` {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
}
