package idempotency_test

import (
	"encoding/hex"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
)

func fingerprint(t testing.TB, operation, ifMatch, body string) string {
	t.Helper()
	sum, err := idempotency.Fingerprint(operation, ifMatch, []byte(body))
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if len(sum) != 32 {
		t.Fatalf("the fingerprint has %d bytes, want 32", len(sum))
	}
	return hex.EncodeToString(sum)
}

func TestFingerprintOfTheSame(t *testing.T) {
	t.Parallel()
	want := fingerprint(t, "grant", "", `{"a":"é","b":{"c":[1,"x"],"d":null}}`)
	for _, body := range []string{
		` { "a" : "é" , "b" : { "c" : [ 1 , "x" ] , "d" : null } } `,
		`{"b":{"d":null,"c":[1,"x"]},"a":"\u00e9"}`,
		"{\r\n\t\"\\u0061\":\"\\u00E9\",\"b\":{\"c\":[1.0,\"\\u0078\"],\"d\":null}}\n",
	} {
		if got := fingerprint(t, "grant", "", body); got != want {
			t.Errorf("%s has another fingerprint, want the same", body)
		}
	}
}

// Requests that differ in any part have different fingerprints, even if their parts joined
// together are the same text.
func TestFingerprintOfOthers(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, request := range [][3]string{
		{"grant", "", `{}`},
		{"revoke", "", `{}`},
		{"grant", "1", `{}`},
		{"grant", "2", `{}`},
		{"grant", "12", `{}`},
		{"grant", "", `{"a":1}`},
		{"grant", "", `{"a":2}`},
		{"grant", "", `{"a":"1"}`},
		{"grant", "", `{"A":1}`},
		{"grant", "", `{"a":null}`},
		{"grant", "", `{"a":true}`},
		{"grant", "", `{"a":[1]}`},
		{"grant", "", `{"a":[1,2]}`},
		{"grant", "", `{"a":[2,1]}`},
		{"grant", "", `{"a":{}}`},
		{"grant", "", `{"a":"é"}`},
		{"grant", "", "{\"a\":\"e\u0301\"}"},
		{"grant", "", `{"a":"a","b":"b"}`},
		{"grant", "", `{"a":"b","b":"a"}`},
		{"grant", "", `{"a":"x\",\"b\":\"y"}`},
		{"grant", "", `{"a":"x","b":"y"}`},
		{"grant", "", `[]`},
		{"grant", "", `""`},
		{"grant1", "", `{}`},
		{"grant", "", `{"a":"\n"}`},
		{"grant", "", `{"a":"\\n"}`},
		{"grant", "", `{"a":"𝄞"}`},
	} {
		sum := fingerprint(t, request[0], request[1], request[2])
		text := request[0] + " " + request[1] + " " + request[2]
		if other, ok := seen[sum]; ok {
			t.Errorf("%s and %s have the same fingerprint", text, other)
		}
		seen[sum] = text
	}
}

func TestFingerprintRefuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `{`, `{"a":}`, `x`} {
		if _, err := idempotency.Fingerprint("grant", "", []byte(body)); err == nil {
			t.Errorf("%q has a fingerprint, want an error", body)
		}
	}
}

// The stored hash outlives a deployment: a retry that meets the next version of
// the program must still find its answer.
func TestFingerprintIsStable(t *testing.T) {
	t.Parallel()
	const want = "8221fcd2a53374b69ec30aca3e771a8a216ea7d9504a385df8acfd090a9c6236"
	if got := fingerprint(t, "grant", "12", `{"user_id":"u_1","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_1"}`); got != want {
		t.Errorf("the fingerprint is %s, want %s as in earlier versions", got, want)
	}
}
