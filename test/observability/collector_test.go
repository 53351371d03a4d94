//go:build observability

package observability_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
	"github.com/miniserversystem/miniserver/test/system"
)

// With the configuration that compose gives it, a collector carries traces to their
// backend, and metrics to Prometheus under the names that the rules know.
func TestThroughTheCollector(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	var traces strings.Builder
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			mutex.Lock()
			defer mutex.Unlock()
			_, err = io.Copy(&traces, body)
		}
		if err != nil {
			t.Errorf("a batch cannot be read: %v", err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(backend.Close)
	w := watch(t, nil)
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	collector := program.Start(t, exec.Command(tool(t, "collector"), "--config="+filepath.Join(observability(t), "collector.yaml"),
		"--set=receivers.otlp.protocols.http.endpoint="+proc.Address(port), "--set=service.telemetry.metrics.level=none",
		"--set=exporters.otlp_http/traces.endpoint="+backend.URL, "--set=exporters.otlp_http/metrics.endpoint="+w.url+"/api/v1/otlp"))
	kit.Must(t, collector.WaitReady(t.Context(), kit.Patience, proc.Accepts(port)))

	s := system.Start(t, "WAKES=false", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+proc.Address(port))
	system.WantStatus(t, s.Grant("k", "u_1", "item1"), http.StatusOK)
	s.DeliverAll()
	s.Runtime.Close() // sends what is left
	kit.Eventually(t, "the trace has arrived", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return strings.Contains(traces.String(), "deliver notification")
	})
	for _, want := range []string{
		`outbox_oldest_age_seconds{job="miniserver",outbox="entitlement",status="PENDING"}`,
		`notification_sent_after_seconds_bucket{event_type="EntitlementGranted",le=~"5([.]0)?"}`,
		`http_server_request_duration_seconds_count{faas_name="gateway",http_response_status_code="200"}`,
		`tick_items_total{function="notify",outcome="done",source="entitlement.events"}`,
	} {
		kit.Eventually(t, want+" has arrived", func() bool { return len(w.series(want)) == 1 })
	}
}
