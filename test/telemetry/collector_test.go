package telemetry_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// collector is an OpenTelemetry collector that keeps traces.
type collector struct {
	URL string

	mutex sync.Mutex
	raw   bytes.Buffer
	spans []*otlp.Span
}

func collect(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch collected.ExportTraceServiceRequest
		if err == nil && r.URL.Path == "/v1/traces" {
			err = proto.Unmarshal(body, &batch)
		}
		if err != nil {
			t.Errorf("a batch cannot be read: %v", err)
		}
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.raw.Write(body)
		for _, resource := range batch.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// traced are the settings of a system whose traces c gets.
func (c *collector) traced(more ...string) []string {
	return append([]string{"WAKES=false", "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_METRICS_EXPORTER=none"}, more...)
}

// all returns the spans that have ended.
func (c *collector) all(s *system.System, t *testing.T) []*otlp.Span {
	t.Helper()
	kit.Must(t, s.Runtime.Flush(t.Context()))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Clone(c.spans)
}

// trace returns the spans of a trace in the order in which they began.
func (c *collector) trace(s *system.System, t *testing.T, id string) []*otlp.Span {
	t.Helper()
	var spans []*otlp.Span
	for _, span := range c.all(s, t) {
		if hex.EncodeToString(span.GetTraceId()) == id {
			spans = append(spans, span)
		}
	}
	slices.SortStableFunc(spans, func(a, b *otlp.Span) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	return spans
}

// exported is all that was sent.
func (c *collector) exported(s *system.System, t *testing.T) string {
	t.Helper()
	kit.Must(t, s.Runtime.Flush(t.Context()))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.raw.String()
}

// tree draws a trace: each span below its parent, in the order in which they began.
// Statements and commands are drawn as their store; how a new connection is made, and
// prepares a statement, is left out.
func tree(spans []*otlp.Span) string {
	var out strings.Builder
	known := map[string]bool{}
	for _, span := range spans {
		known[string(span.GetSpanId())] = true
	}
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, span := range spans {
			of := string(span.GetParentSpanId())
			if !known[of] {
				of = ""
			}
			if of != parent || span.GetName() == "connect" || attributeOf(span, "pgx.prepare_stmt.name") != "" {
				continue
			}
			kind := strings.ToLower(strings.TrimPrefix(span.GetKind().String(), "SPAN_KIND_"))
			fmt.Fprintf(&out, "%s%s (%s)\n", indent, nameOf(span), kind)
			below(string(span.GetSpanId()), indent+"  ")
		}
	}
	below("", "")
	return out.String()
}

func nameOf(span *otlp.Span) string {
	return cmp.Or(attributeOf(span, "db.system.name"), attributeOf(span, "db.system"), span.GetName())
}

func attributeOf(span *otlp.Span, key string) string {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
