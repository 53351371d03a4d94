package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A request repeated with its key gets the first answer, byte for byte, however its JSON
// is spelled and whatever happened since.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for _, path := range []string{system.GrantsPath, system.RevokesPath} {
		t.Run(path, func(t *testing.T) {
			s := s.In(t)
			user := "u" + path[len("/v1/entitlements/"):]
			first := s.Post(path, "k1", system.ChangeBody(user, "itém", "purchase", "p_1"))
			system.WantStatus(t, first, http.StatusOK)
			if first.Header["Idempotent-Replayed"] != nil || first.Header.Get("ETag") != `"1"` {
				t.Fatalf("the first answer has the headers %v", first.Header)
			}
			if got := first.JSON(t); got["user_id"] != user || got["version"] != 1.0 || len(got) != 5 {
				t.Fatalf("the first answer is %s", first.Body)
			}
			// The entitlement changes meanwhile.
			system.WantStatus(t, s.Grant("k2"+user, user, "itém"), http.StatusOK)
			system.WantStatus(t, s.Revoke("k3"+user, user, "itém"), http.StatusOK)
			rows := s.Rows()
			for _, body := range []string{
				system.ChangeBody(user, "itém", "purchase", "p_1"),
				fmt.Sprintf(`{"purchase_id":"p_1","reason":"purchase","stock_keeping_unit":"itém","user_id":%q}`, user),
				fmt.Sprintf("\n{\t\"user_id\" : %q ,\r\n \"stock_keeping_unit\":\"itém\",\"reason\":\"purchase\",\"purchase_id\":\"p_1\" } \n", user),
				fmt.Sprintf(`{"user_id":%q,"stock_keeping_unit":"it\u00e9m","re\u0061son":"purchase","purchase_id":"p\u005F1"}`, user),
			} {
				system.WantReplay(t, first, s.Post(path, "k1", body))
			}
			if after := s.Rows(); after != rows {
				t.Errorf("a replay left rows:\n%s\n%s", rows, after)
			}
		})
	}
}

// A key stands for one request: any other with it is refused.
func TestReusedKey(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Post(system.GrantsPath, "k1", system.ChangeBody("u_1", "item1", "purchase", "p_1")), http.StatusOK)
	system.WantStatus(t, s.Post(system.GrantsPath, "k2", system.ChangeBody("u_1", "item1", "purchase", "p_2"), `If-Match: "1"`), http.StatusOK)
	for _, test := range []struct {
		name, key, body string
		headers         []string
	}{
		{"other user", "k1", system.ChangeBody("u_2", "item1", "purchase", "p_1"), nil},
		{"other item", "k1", system.ChangeBody("u_1", "item2", "purchase", "p_1"), nil},
		{"other reason", "k1", system.ChangeBody("u_1", "item1", "gift", "p_1"), nil},
		{"other purchase", "k1", system.ChangeBody("u_1", "item1", "purchase", "p_2"), nil},
		{"values swapped", "k1", system.ChangeBody("item1", "u_1", "purchase", "p_1"), nil},
		{"with If-Match now", "k1", system.ChangeBody("u_1", "item1", "purchase", "p_1"), []string{`If-Match: "1"`}},
		{"with a matching If-Match now", "k1", system.ChangeBody("u_1", "item1", "purchase", "p_1"), []string{`If-Match: "2"`}},
		{"other If-Match", "k2", system.ChangeBody("u_1", "item1", "purchase", "p_2"), []string{`If-Match: "2"`}},
		{"If-Match left out", "k2", system.ChangeBody("u_1", "item1", "purchase", "p_2"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			s.Untouched(func() {
				system.WantProblem(t, s.Post(system.GrantsPath, test.key, test.body, test.headers...), http.StatusConflict, "idempotency_key_reused")
			})
		})
	}
}

// A key belongs to one caller and one operation.
func TestKeyScope(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	body := system.ChangeBody("u_1", "item1", "purchase", "p_1")
	system.WantStatus(t, s.Post(system.GrantsPath, "k1", body), http.StatusOK)

	revoked := s.Post(system.RevokesPath, "k1", body)
	if revoked.Status != http.StatusOK || revoked.JSON(t)["status"] != "REVOKED" || revoked.Header["Idempotent-Replayed"] != nil {
		t.Fatalf("a revoke with a grant's key is answered %d %s, want 200", revoked.Status, revoked.Body)
	}
	other := auth.Identity{Subject: "another-service", Roles: []string{auth.RoleEntitlementWriter}}
	theirs := s.As(other, "grant", http.MethodPost, system.GrantsPath, body, "Idempotency-Key: k1")
	if theirs.Status != http.StatusOK || theirs.Header["Idempotent-Replayed"] != nil || theirs.Header.Get("ETag") != `"3"` {
		t.Fatalf("a grant with another caller's key is answered %d %v %s, want version 3", theirs.Status, theirs.Header, theirs.Body)
	}
	// Nor does a request with another body reveal that the key was used.
	third := auth.Identity{Subject: "third-service", Roles: []string{auth.RoleEntitlementWriter}}
	system.WantStatus(t, s.As(third, "grant", http.MethodPost, system.GrantsPath, system.ChangeBody("u_9", "item9", "x", "y"), "Idempotency-Key: k1"), http.StatusOK)
	if n := s.Count(`SELECT count(*) FROM entitlement.idempotency_keys WHERE idem_key = 'k1'`); n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
}

// A caller who has lost the role does not get the stored answer either.
func TestAuthoriseBeforeReplay(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	body := system.ChangeBody("u_1", "item1", "purchase", "p_1")
	writer := auth.Identity{Subject: "shop", Roles: []string{auth.RoleEntitlementWriter}}
	system.WantStatus(t, s.As(writer, "grant", http.MethodPost, system.GrantsPath, body, "Idempotency-Key: k1"), http.StatusOK)
	demoted := auth.Identity{Subject: "shop", Roles: []string{auth.RolePlayer}}
	system.WantProblem(t, s.As(demoted, "grant", http.MethodPost, system.GrantsPath, body, "Idempotency-Key: k1"), http.StatusForbidden, "role_missing")
}

// An expired key is forgotten, and can be used again, for another request too.
func TestExpiredKey(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	if n := s.Count(`SELECT count(*) FROM entitlement.idempotency_keys`); n != 0 {
		t.Fatalf("%d idempotency keys, want 0", n)
	}
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
	if n := s.Count(`SELECT count(*) FROM entitlement.idempotency_keys WHERE expires_at BETWEEN now() + '23h59m' AND now() + '24h'`); n != 1 {
		t.Error("the key is not kept for 24 hours")
	}
	expire := func() {
		_, err := s.Pool.Exec(context.Background(), `UPDATE entitlement.idempotency_keys SET expires_at = now() - interval '1 second'`)
		kit.Must(t, err)
	}
	expire()
	again := s.Grant("k1", "u_1", "item1")
	if again.Status != http.StatusOK || again.Header["Idempotent-Replayed"] != nil || again.Header.Get("ETag") != `"2"` {
		t.Fatalf("the same request is answered %d %v %s, want version 2", again.Status, again.Header, again.Body)
	}
	system.WantReplay(t, again, s.Grant("k1", "u_1", "item1"))
	expire()
	other := s.Grant("k1", "u_2", "item2")
	if other.Status != http.StatusOK || other.Header["Idempotent-Replayed"] != nil || other.Header.Get("ETag") != `"1"` {
		t.Fatalf("the other request is answered %d %v %s, want version 1", other.Status, other.Header, other.Body)
	}
	expire()
	// An expired key does not exempt a request from If-Match.
	system.WantProblem(t, s.Grant("k1", "u_2", "item2", `If-Match: "7"`), http.StatusPreconditionFailed, "version_mismatch")
}

// A retry gets its answer even though its own change moved the version on.
func TestReplayWinsOverIfMatch(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
	first := s.Revoke("k2", "u_1", "item1", `If-Match: "1"`)
	system.WantStatus(t, first, http.StatusOK)
	system.WantReplay(t, first, s.Revoke("k2", "u_1", "item1", `If-Match: "1"`))
	system.WantReplay(t, first, s.Revoke("k2", "u_1", "item1", `If-Match: 1`))
}

// 412 is not stored: the corrected request can use the key.
func TestMismatchIsNotStored(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
	system.WantProblem(t, s.Grant("k2", "u_1", "item1", `If-Match: "2"`), http.StatusPreconditionFailed, "version_mismatch")
	system.WantStatus(t, s.Grant("k3", "u_1", "item1"), http.StatusOK)
	a := s.Grant("k2", "u_1", "item1", `If-Match: "2"`)
	if a.Status != http.StatusOK || a.Header["Idempotent-Replayed"] != nil || a.Header.Get("ETag") != `"3"` {
		t.Fatalf("answered %d %v %s, want version 3", a.Status, a.Header, a.Body)
	}
}
