package telemetry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// BenchmarkGrant measures what telemetry costs a grant over HTTP, with its client in the
// same process. Each round asks every system once, by turns.
//
//	go test ./test/telemetry -run '^$' -bench Grant -benchtime 3000x
func BenchmarkGrant(b *testing.B) {
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(sink.Close)
	traces := func(share string) []string {
		return []string{
			"METRICS_ADDRESS=127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT=" + sink.URL, "OTEL_METRICS_EXPORTER=none",
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=" + share,
		}
	}
	kinds := []struct {
		name        string
		environment []string
	}{
		{"off", nil}, {"metrics", []string{"METRICS_ADDRESS=127.0.0.1:0"}}, {"traces-1%", traces("0.01")}, {"traces-100%", traces("1")},
	}
	systems := make([]*system.System, len(kinds))
	for i, kind := range kinds {
		systems[i] = system.Start(b, append([]string{"WAKES=false", "LOG_LEVEL=error"}, kind.environment...)...)
		for n := range 200 {
			systems[i].Grant(fmt.Sprint("warm", n), "u_1", system.SKU(n))
		}
	}
	took := make([][]time.Duration, len(kinds))
	for n := 0; b.Loop(); n++ {
		for i, s := range systems {
			began := time.Now()
			s.Grant(fmt.Sprint("k", n), fmt.Sprint("u_", n), "item1")
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, kind := range kinds {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), kind.name+"-p50-µs")
		b.ReportMetric(float64(took[i][len(took[i])*99/100].Microseconds()), kind.name+"-p99-µs")
		b.ReportMetric(testing.AllocsPerRun(500, func() {
			systems[i].Grant(fmt.Sprint("a", time.Now().UnixNano()), "u_1", "item1")
		}), kind.name+"-allocs")
		kit.Must(b, systems[i].Runtime.Flush(b.Context()))
	}
}
