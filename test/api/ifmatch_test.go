package api_test

import (
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// If-Match takes one version, as ETag gave it.
func TestBadIfMatch(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Grant("first", "u_1", "item1"), http.StatusOK)
	for name, values := range map[string][]string{
		"a word": {`"abc"`}, "zero": {`"0"`}, "negative": {`"-1"`}, "plus": {`"+1"`}, "leading zero": {`"01"`},
		"weak": {`W/"1"`}, "too big": {`"9223372036854775808"`}, "far too big": {`"99999999999999999999999"`},
		"fraction": {`"1.0"`}, "exponent": {`"1e0"`}, "hexadecimal": {`"0x1"`}, "spaces inside": {`" 1 "`},
		"any": {`*`}, "list": {`"1", "2"`}, "two headers": {`"1"`, `"2"`}, "twice the same": {`"1"`, `"1"`},
		"empty": {``}, "empty quotes": {`""`}, "not closed": {`"1`}, "not opened": {`1"`}, "two quotes": {`""1""`},
		"other digits": {`"١"`}, "underscore": {`"1_0"`},
	} {
		for _, path := range []string{system.GrantsPath, system.RevokesPath} {
			t.Run(name+path[len("/v1/entitlements"):], func(t *testing.T) {
				s := s.In(t)
				s.Untouched(func() {
					a := s.Send(system.Request{
						Method: http.MethodPost, Path: path, Token: s.Writer,
						Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}, "If-Match": values},
						Body:   system.ChangeBody("u_1", "item1", "purchase", "p_1"),
					})
					system.WantProblem(t, a, http.StatusBadRequest, "if_match_invalid")
				})
			})
		}
	}
}

// A write with If-Match changes the version that its caller saw, or nothing.
func TestIfMatch(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	s.Untouched(func() {
		// An entitlement that does not exist has no version 1.
		system.WantProblem(t, s.Grant("k0", "u_1", "item1", `If-Match: "1"`), http.StatusPreconditionFailed, "version_mismatch")
		system.WantProblem(t, s.Revoke("k0", "u_1", "item1", `If-Match: "1"`), http.StatusPreconditionFailed, "version_mismatch")
	})
	etag := s.Grant("k1", "u_1", "item1").Header.Get("ETag")
	if etag != `"1"` {
		t.Fatalf("ETag %s, want \"1\"", etag)
	}
	a := s.Revoke("k2", "u_1", "item1", "If-Match: "+etag)
	system.WantStatus(t, a, http.StatusOK)
	if a.Header.Get("ETag") != `"2"` || a.JSON(t)["status"] != "REVOKED" {
		t.Fatalf("answered %v %s, want REVOKED at version 2", a.Header, a.Body)
	}
	s.Untouched(func() {
		for _, stale := range []string{`"1"`, `"3"`, `"9223372036854775807"`} {
			system.WantProblem(t, s.Grant("k3", "u_1", "item1", "If-Match: "+stale), http.StatusPreconditionFailed, "version_mismatch")
		}
	})
	if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != 2 {
		t.Errorf("version %d, want 2", v)
	}
}
