package limit_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Keys are short, readable where they can be, in one cluster slot each, and expire when
// the bucket is full.
func TestKeys(t *testing.T) {
	t.Parallel()
	url := kit.Redis(t).URL()
	l, client := shared(t, url), connect(t, url)
	policy := limit.Policy{Name: "player", Rate: 3, Period: time.Minute, Burst: 3}
	check := func(key, stored string) {
		t.Helper()
		if !l.Allow(t.Context(), policy, key).Allowed {
			t.Fatalf("%q is not allowed", key)
		}
		got, err := client.Keys(t.Context(), "*").Result()
		if want := "rate:limit:{player:" + stored + "}"; err != nil || len(got) != 1 || got[0] != want {
			t.Fatalf("%q is in %q, want %q: %v", key, got, want, err)
		}
		if ttl := client.TTL(t.Context(), got[0]).Val(); ttl < 15*time.Second || ttl > 21*time.Second {
			t.Errorf("%q lives for %s, want 15s to 21s", got[0], ttl)
		}
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, plain := range []string{"", "u_1", "192.0.2.1", "2001:db8:1:2::/64", "unknown", "a|b-c.d@e+f=g/h", strings.Repeat("a", 64)} {
		check(plain, plain)
	}
	for _, odd := range []string{strings.Repeat("a", 65), strings.Repeat("b", 1<<20), "a}{b", "#", "a b", "é", "\xff", "\x00", "a\r\nFLUSHALL\r\n"} {
		check(odd, fmt.Sprintf("#%x", sha256.Sum256([]byte(odd))))
	}
}
