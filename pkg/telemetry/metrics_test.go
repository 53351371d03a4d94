package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("/metrics answers %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func newMetrics(t *testing.T) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.NewMetrics(settings.Settings{ServiceName: "miniserver"}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

func listen(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	for tries := 5; ; tries-- { // another process may take the port in between
		port, err := proc.FreePort(0)
		if err != nil {
			t.Fatal(err)
		}
		address, err := m.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return address.String()
		}
		if tries == 0 {
			t.Fatal(err)
		}
	}
}

// sampled returns the context of a request whose trace is recorded.
func sampled(r *http.Request) context.Context {
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	return telemetry.Untraced(r, noop.NewTracerProvider(), true)
}

// The metrics have the names that dashboards and alerts use.
func TestNamesOfMetrics(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	meter := m.Provider().Meter("matchmaking")
	mode := metric.WithAttributes(attribute.String("mode", "casual"))
	total, _ := meter.Int64Counter("mm.match.total")
	total.Add(t.Context(), 3, mode)
	depth, _ := meter.Int64Gauge("mm.queue.depth")
	depth.Record(t.Context(), 7, mode)
	age, _ := meter.Float64Gauge("mm.queue.oldest_age", metric.WithUnit("s"))
	age.Record(t.Context(), 1.5, mode)
	wait, _ := meter.Float64Histogram("mm.time_to_match", metric.WithUnit("s"))
	wait.Record(t.Context(), 0.012, mode)
	errors, _ := meter.Int64Counter("mm.redis.errors")
	errors.Add(t.Context(), 2, mode)
	size, _ := meter.Int64Counter("mm.script.size", metric.WithUnit("By"))
	size.Add(t.Context(), 5, mode)
	players, _ := meter.Int64UpDownCounter("mm.players", metric.WithUnit("{player}"))
	players.Add(t.Context(), 4, mode)
	text := scrape(t, m)
	for _, line := range []string{
		`mm_match_total{mode="casual"} 3`,
		`mm_queue_depth{mode="casual"} 7`,
		`mm_redis_errors_total{mode="casual"} 2`,
		`mm_script_size_bytes_total{mode="casual"} 5`,
		`mm_players{mode="casual"} 4`,
		`mm_queue_oldest_age_seconds{mode="casual"} 1.5`,
		`mm_time_to_match_seconds_bucket{mode="casual",le="0.01"} 0`,
		`mm_time_to_match_seconds_bucket{mode="casual",le="0.015"} 1`,
		`mm_time_to_match_seconds_bucket{mode="casual",le="0.001"} 0`,
		`mm_time_to_match_seconds_bucket{mode="casual",le="120"} 1`,
		`mm_time_to_match_seconds_bucket{mode="casual",le="+Inf"} 1`,
		"go_goroutines ",
		"process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
	for _, noise := range []string{"otel_scope", "target_info", "_total_total", "_seconds_seconds"} {
		if strings.Contains(text, noise) {
			t.Errorf("%q should not be in\n%s", noise, text)
		}
	}
}

// An exemplar leads from a slow bucket to the log lines of its trace.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	wait, err := m.Provider().Meter("test").Float64Histogram("wait", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	ctx := sampled(r)
	wait.Record(ctx, 0.012)
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, r)
	if got := answer.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/openmetrics-text; version=1.0.0") {
		t.Errorf("Content-Type %q", got)
	}
	text := answer.Body.String()
	exemplar := `wait_seconds_bucket{le="0.015"} 1 # {`
	if !strings.Contains(text, exemplar) || !strings.Contains(text, trace.SpanContextFromContext(ctx).TraceID().String()) || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("the trace is not an exemplar of its bucket in\n%s", text)
	}
}

// A mistake in one metric's name must not hide all the others.
func TestNamesThatCollide(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	for _, meter := range []string{"a", "b"} {
		same, err := m.Provider().Meter(meter).Int64Counter("same.name")
		if err != nil {
			t.Fatal(err)
		}
		same.Add(t.Context(), 1)
	}
	runtime, err := m.Provider().Meter("a").Int64Gauge("go.goroutines")
	if err != nil {
		t.Fatal(err)
	}
	runtime.Record(t.Context(), 1)
	good, err := m.Provider().Meter("b").Int64Counter("good")
	if err != nil {
		t.Fatal(err)
	}
	good.Add(t.Context(), 1)
	scrape(t, m) // its errors are counted for the next scrape
	text := scrape(t, m)
	for _, line := range []string{"good_total 1", "process_resident_memory_bytes ", `promhttp_metric_handler_errors_total{cause="gathering"} 1`} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

// Labels that callers can make up must not fill the memory; values beyond the bound are
// counted in one series.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	const labels, bound = 10_000, 500
	m := newMetrics(t)
	counter, err := m.Provider().Meter("test").Int64Counter("made.up")
	if err != nil {
		t.Fatal(err)
	}
	for i := range labels {
		counter.Add(t.Context(), 1, metric.WithAttributes(attribute.String("label", strconv.Itoa(i))))
	}
	text := scrape(t, m)
	if n := strings.Count(text, "\nmade_up_total{"); n != bound {
		t.Errorf("%d series, want %d", n, bound)
	}
	if rest := fmt.Sprintf("\nmade_up_total{otel_metric_overflow=\"true\"} %d\n", labels-bound+1); !strings.Contains(text, rest) {
		t.Errorf("%q is not in the answer", rest)
	}
}

func TestMetricsListen(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	address := listen(t, m)
	for path, want := range map[string]int{"/metrics": 200, "/debug/pprof/": 200, "/": 404, "/v1/me": 404} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s answers %d, want %d", path, response.StatusCode, want)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 32<<10))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("32 KiB of headers are answered %d, want 431", response.StatusCode)
	}
	if _, err := m.Listen("127.0.0.1:0"); err == nil {
		t.Error("Listen succeeded twice")
	}
	other := newMetrics(t)
	if _, err := other.Listen(address); err == nil || !strings.Contains(err.Error(), "METRICS_ADDRESS "+address) {
		t.Errorf("Listen at an address that is taken: %v, want an error that names it", err)
	}
}

func TestCloseStopsListening(t *testing.T) {
	t.Parallel()
	m, err := telemetry.NewMetrics(settings.Settings{ServiceName: "miniserver"}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, m)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Errorf("after Close %s still accepts connections", address)
	}
}

// BenchmarkMetrics measures counting with labels that are prepared once: options in a
// slice of their own are not allocated at each call.
func BenchmarkMetrics(b *testing.B) {
	m, err := telemetry.NewMetrics(settings.Settings{ServiceName: "miniserver"}, "test", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(b.Context()) })
	counter, _ := m.Provider().Meter("bench").Int64Counter("adds")
	histogram, _ := m.Provider().Meter("bench").Float64Histogram("records", metric.WithUnit("s"))
	prepared := metric.WithAttributeSet(attribute.NewSet(attribute.String("mode", "casual"), attribute.String("result", "matched")))
	add, record := []metric.AddOption{prepared}, []metric.RecordOption{prepared}
	request := sampled(httptest.NewRequest(http.MethodGet, "/", nil))
	for name, ctx := range map[string]context.Context{"": b.Context(), "InRequest": request} {
		b.Run("Add"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				counter.Add(ctx, 1, add...)
			}
		})
		b.Run("Record"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				histogram.Record(ctx, 0.012, record...)
			}
		})
	}
	b.Run("NewMetrics", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m, err := telemetry.NewMetrics(settings.Settings{ServiceName: "miniserver"}, "test", nil)
			if err != nil {
				b.Fatal(err)
			}
			_ = m.Close(b.Context())
		}
	})
}
