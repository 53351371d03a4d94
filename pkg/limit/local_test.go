package limit_test

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/limit"
)

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 100,000 callers do not fill the memory, and do not make the limiter forget a busy one,
// which would start with a full bucket again.
func TestLocalMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l := alone()
	policy := limit.Policy{Name: "address", Rate: 1, Period: 24 * time.Hour, Burst: 1}
	before := heap()
	if !l.Allow(t.Context(), policy, "busy").Allowed {
		t.Fatal("the first request is refused")
	}
	most := 0
	for i := range 100_000 {
		l.Allow(t.Context(), policy, strconv.FormatUint(rand.Uint64(), 36))
		if i%1000 == 0 {
			most = max(most, l.LocalKeys())
			if l.Allow(t.Context(), policy, "busy").Allowed {
				t.Fatalf("a busy key was forgotten after %d others", i)
			}
		}
	}
	// Other tests run at the same time; 100,000 keys would be 26 MB.
	grown := int64(heap()) - int64(before)
	t.Logf("%d keys at most, heap grown by %d KiB", most, grown>>10)
	if most > limit.MaxLocalKeys || grown > 20<<20 {
		t.Errorf("%d keys and %d bytes, want %d and %d at most", most, grown, limit.MaxLocalKeys, 20<<20)
	}
	runtime.KeepAlive(l)
}
