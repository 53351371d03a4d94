package limit_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/test/kit"
)

// BenchmarkAllow measures one request, made one after the other and by many at once.
func BenchmarkAllow(b *testing.B) {
	policy := limit.Policy{Name: "player", Rate: 250, Burst: 1000}
	for name, l := range map[string]*limit.Limiter{"redis": shared(b, kit.Redis(b).URL()), "local": alone()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Allow(b.Context(), policy, "u_"+strconv.Itoa(i%1000))
			}
		})
		b.Run(name+"-32-at-once", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(16)
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Allow(b.Context(), policy, "u_"+strconv.Itoa(int(next.Add(1)%1000)))
				}
			})
		})
	}
}
