package functions_test

import (
	"net/http"
	"testing"
)

// If-Match is one version, as it came in ETag.
func TestBadIfMatch(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	wantStatus(t, s.grant("first", "u_1", "item1"), http.StatusOK)
	for name, values := range map[string][]string{
		"a word": {`"abc"`}, "zero": {`"0"`}, "negative": {`"-1"`}, "plus": {`"+1"`}, "leading zero": {`"01"`},
		"weak": {`W/"1"`}, "too big": {`"9223372036854775808"`}, "far too big": {`"99999999999999999999999"`},
		"fraction": {`"1.0"`}, "exponent": {`"1e0"`}, "hexadecimal": {`"0x1"`}, "spaces inside": {`" 1 "`},
		"any": {`*`}, "list": {`"1", "2"`}, "two headers": {`"1"`, `"2"`}, "twice the same": {`"1"`, `"1"`},
		"empty": {``}, "empty quotes": {`""`}, "not closed": {`"1`}, "not opened": {`1"`}, "two quotes": {`""1""`},
		"other digits": {`"١"`}, "underscore": {`"1_0"`},
	} {
		for _, path := range []string{grantsPath, revokesPath} {
			t.Run(name+path[len("/v1/entitlements"):], func(t *testing.T) {
				s := s.in(t)
				s.untouched(func() {
					a := s.send(request{method: http.MethodPost, path: path, token: s.writer,
						header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}, "If-Match": values},
						body:   changeBody("u_1", "item1", "purchase", "p_1")})
					wantProblem(t, a, http.StatusBadRequest, "if_match_invalid")
				})
			})
		}
	}
}

// A write with If-Match happens to the version that its caller saw, or not at all.
func TestIfMatch(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	s.untouched(func() {
		// There is no version 1 of what does not exist.
		wantProblem(t, s.grant("k0", "u_1", "item1", `If-Match: "1"`), http.StatusPreconditionFailed, "version_mismatch")
		wantProblem(t, s.revoke("k0", "u_1", "item1", `If-Match: "1"`), http.StatusPreconditionFailed, "version_mismatch")
	})
	etag := s.grant("k1", "u_1", "item1").header.Get("ETag")
	if etag != `"1"` {
		t.Fatalf("ETag %s", etag)
	}
	a := s.revoke("k2", "u_1", "item1", "If-Match: "+etag)
	wantStatus(t, a, http.StatusOK)
	if a.header.Get("ETag") != `"2"` || a.json(t)["status"] != "REVOKED" {
		t.Fatalf("%v %s", a.header, a.body)
	}
	s.untouched(func() {
		for _, stale := range []string{`"1"`, `"3"`, `"9223372036854775807"`} {
			wantProblem(t, s.grant("k3", "u_1", "item1", "If-Match: "+stale), http.StatusPreconditionFailed, "version_mismatch")
		}
	})
	if v := s.count(`SELECT version FROM entitlement.entitlements`); v != 2 {
		t.Errorf("version %d", v)
	}
}
