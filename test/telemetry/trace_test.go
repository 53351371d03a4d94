// Package telemetry_test asks what operators see of the whole system: its traces, its
// metrics and its log.
package telemetry_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "Traceparent: 00-" + traceID + "-" + parentID + "-01"
)

// A service's trace goes on from the gateway to the webhook's receiver, and ends when the
// notification is SENT.
func TestTraceOfAGrant(t *testing.T) {
	t.Parallel()
	var received atomic.Value
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received.Store(r.Header.Get("Traceparent")) }))
	t.Cleanup(receiver.Close)
	c := collect(t)
	s := system.Start(t, c.traced("NOTIFICATION_CHANNEL=webhook", "WEBHOOK_URLS="+receiver.URL,
		"WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WEBHOOK_ALLOW_PRIVATE=true")...)
	s.Grant("warm", "u_0", "item0") // opens the connections
	s.DeliverAll()
	system.WantStatus(t, s.Grant("k", "u_1", "item1", traceparent), http.StatusOK)
	s.DeliverAll()
	spans := c.trace(s, t, traceID)
	want := `POST /v1/entitlements/grants (server)
  redis (client)
  call grant (client)
    POST /v1/entitlements/grants (server)
      postgresql (client)
      publish batch (internal)
        publish entitlement.events (producer)
        postgresql (client)
      accept batch (internal)
        accept entitlement.events (consumer)
        postgresql (client)
      deliver batch (internal)
        deliver notification (client)
        postgresql (client)
`
	if got := tree(spans); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
	if got := hex.EncodeToString(spans[0].GetParentSpanId()); got != parentID {
		t.Errorf("the trace begins below %s, want the service's span %s", got, parentID)
	}
	var sent string
	for i, span := range spans {
		if nameOf(span) == "deliver notification" {
			sent = "00-" + traceID + "-" + hex.EncodeToString(span.GetSpanId()) + "-01"
			// SENT is recorded within it.
			if last := spans[i+1]; nameOf(last) != "postgresql" || last.GetEndTimeUnixNano() > span.GetEndTimeUnixNano() {
				t.Errorf("the span of the delivery ends before SENT is recorded")
			}
		}
	}
	if received.Load() != sent {
		t.Errorf("the receiver got the traceparent %v, want that of the delivery, %s", received.Load(), sent)
	}
	t.Logf("the trace as exported:\n%v", spans)
}

// A transfer's trace goes through two outboxes and ends when both owners are notified.
func TestTraceOfATransfer(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s, people := system.StartWithPeople(t, c.traced()...)
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice := people.Player(t, "alice")
	from, to := s.Opened(operator, s.UserID(alice), "10"), s.Opened(operator, "u_b", "0")
	pay := func() (trace string) {
		system.WantStatus(t, s.Pay(alice, s.TransferKey(alice), from, to, "1"), http.StatusOK)
		for _, function := range []string{"relay", "settle", "relay", "notify", "deliver"} {
			s.Tick(function)
		}
		for _, span := range c.all(s, t) {
			if span.GetName() == "publish transfer.settled" {
				trace = hex.EncodeToString(span.GetTraceId())
			}
		}
		return trace
	}
	pay() // opens the connections
	const want = `POST /v1/transfers (server)
  redis (client)
  call transfer (client)
    POST /v1/transfers (server)
      postgresql (client)
      postgresql (client)
      publish batch (internal)
        publish transfer.events (producer)
        postgresql (client)
      accept batch (internal)
        accept transfer.events (consumer)
        postgresql (client)
      publish batch (internal)
        publish transfer.settled (producer)
        postgresql (client)
      accept batch (internal)
        accept transfer.settled (consumer)
        postgresql (client)
      deliver batch (internal)
        deliver notification (client)
        deliver notification (client)
        postgresql (client)
`
	if got := tree(c.trace(s, t, pay())); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
}

// Both players' traces lead to the match, linked with each other. That of the one who
// waited longer goes on to the notifications.
func TestTraceOfAMatch(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s, people := system.StartWithPeople(t, c.traced()...)
	meet := func(one, other string) (traces []string) {
		seen := len(c.all(s, t))
		for _, name := range []string{one, other} {
			s.Joined(people.Player(t, name), "casual", "k_"+name, "{}")
		}
		for _, function := range []string{"match", "announce", "notify", "deliver"} {
			s.Tick(function)
		}
		for _, span := range c.all(s, t)[seen:] {
			if span.GetName() == "publish matchmaking.events" {
				traces = append(traces, tree(c.trace(s, t, hex.EncodeToString(span.GetTraceId()))))
			}
		}
		return traces
	}
	meet("ann", "ben") // opens the connections
	traces := meet("cleo", "dan")
	const joined = `POST /v1/matchmaking/queues/{mode}/tickets (server)
  redis (client)
  call account (client)
    POST /v1/me (server)
      postgresql (client)
      postgresql (client)
      postgresql (client)
  redis (client)
  call ticket (client)
    POST /v1/matchmaking/queues/{mode}/tickets (server)
      redis (client)
`
	const announced = `      publish batch (internal)
        publish matchmaking.events (producer)
      accept batch (internal)
        accept matchmaking.events (consumer)
        postgresql (client)
      deliver batch (internal)
        deliver notification (client)
        deliver notification (client)
        postgresql (client)
`
	const linked = "      publish matchmaking.events (producer)\n"
	if want := []string{joined + announced, joined + linked}; !slices.Equal(traces, want) {
		t.Errorf("the traces are\n%s\nwant\n%s", strings.Join(traces, "\n"), strings.Join(want, "\n"))
	}
}

// Nobody but a service decides which trace a request belongs to, and whether it is
// recorded: what others name is only linked. The log has the trace's id.
func TestCallersTraceIsLinked(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s, people := system.StartWithPeople(t, c.traced()...)
	s.Call(http.MethodGet, "/v1/me", people.Player(t, "alice"), "", traceparent)
	s.Call(http.MethodGet, "/v1/me", "no token", "", traceparent)
	if spans := c.trace(s, t, traceID); len(spans) != 0 {
		t.Errorf("callers made up the trace of\n%s", tree(spans))
	}
	linked := 0
	for _, span := range c.all(s, t) {
		for _, link := range span.GetLinks() {
			if hex.EncodeToString(link.GetTraceId()) == traceID {
				linked++
				if id := hex.EncodeToString(span.GetTraceId()); !strings.Contains(s.Log.String(), `"trace_id":"`+id+`"`) {
					t.Errorf("the log has no line of the trace %s", id)
				}
			}
		}
	}
	if linked != 2 {
		t.Errorf("%d spans are linked to what the callers named, want those of both requests", linked)
	}
}

// A trace holds no secret and no body.
func TestTracesHoldNoSecrets(t *testing.T) {
	t.Parallel()
	c := collect(t)
	listener := kit.Listen(t)
	people := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
	s := system.StartOn(t, listener, c.traced("OIDC_ISSUER="+people.URL(), "NOTIFICATION_CHANNEL=webhook", "WEBHOOK_URLS=http://127.0.0.1:1/planted-url",
		"WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WEBHOOK_ALLOW_PRIVATE=true")...)
	s.Writer = identity.Token(t, people.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	person := s.Person()
	person.SignIn("alice", "/")
	person.Do(http.MethodGet, "/v1/me?planted-query=1", "")
	s.Grant("planted-key", "u_1", "planted-item")
	s.DeliverAll()
	text := c.exported(s, t)
	if !strings.Contains(text, "deliver notification") || !strings.Contains(text, "/login/callback") {
		t.Fatal("the traces of the sign-in and of the grant are missing, so this test shows nothing")
	}
	for _, secret := range []string{"planted", s.Writer, person.Cookie(), "whsec", "MfKQ9r8", "code=", "state="} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in a trace", secret)
		}
	}
}

// Without a decision to record, nothing is sent, and the log still has trace ids.
func TestNotSampled(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s := system.Start(t, c.traced("OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0")...)
	s.Grant("k", "u_1", "item1")
	s.DeliverAll()
	if text := c.exported(s, t); text != "" {
		t.Errorf("%d bytes of traces were sent, want none", len(text))
	}
	if !strings.Contains(s.Log.String(), `"trace_id":"`) {
		t.Error("the log has no trace id")
	}
	s.Grant("k2", "u_1", "item1", traceparent) // the service decided
	s.DeliverAll()
	if len(c.trace(s, t, traceID)) == 0 {
		t.Error("a trace that the calling service records is not recorded here")
	}
}

// A collector that is away, or takes requests and never answers, delays nothing, and is
// logged once. Not beside other tests: the SDK has one handler of errors for the process.
func TestCollectorAway(t *testing.T) {
	let := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(let) })
	for name, url := range map[string]string{"away": "http://127.0.0.1:1", "hangs": hanging.URL} {
		t.Run(name, func(t *testing.T) {
			s := system.Start(t, (&collector{URL: url}).traced()...)
			for i := range 300 {
				system.WantStatus(t, s.Grant(fmt.Sprint("k", i), "u_1", system.SKU(i)), http.StatusOK)
			}
			for range 2 {
				began := time.Now()
				_ = s.Runtime.Flush(t.Context()) // reports that it failed, where anything was left
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("flushing took %s, want 3 s at most", took)
				}
			}
			warnings := func() int { return strings.Count(s.Log.String(), "telemetry is incomplete") }
			if name == "away" {
				kit.Eventually(t, "the collector's absence is logged", func() bool {
					s.Grant("again", "u_1", "item1")
					return warnings() > 0
				})
			}
			if n := warnings(); n > 1 {
				t.Errorf("%d warnings, want one", n)
			}
		})
	}
}

// The level of the log can be changed while the process runs.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "METRICS_ADDRESS=127.0.0.1:0", "LOG_LEVEL=info")
	metrics, err := s.Runtime.Metrics()
	kit.Must(t, err)
	at, err := metrics.Listen("127.0.0.1:0")
	kit.Must(t, err)
	set := func(method, level string, status int, answer string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+at.String()+"/log-level", strings.NewReader(level))
		kit.Must(t, err)
		got := s.Read(http.DefaultClient.Do(request))
		if got.Status != status || !strings.Contains(string(got.Body), answer) {
			t.Errorf("%s %s is answered %d %s, want %d with %s", method, level, got.Status, got.Body, status, answer)
		}
	}
	logged := func() string {
		before := len(s.Log.String())
		s.Grant(fmt.Sprint("k", before), "u_1", "item1")
		s.Tick("relay")
		return s.Log.String()[before:]
	}
	const debug = `"level":"DEBUG"`
	if text := logged(); strings.Contains(text, debug) {
		t.Errorf("at info it logs %s, want nothing for debugging", text)
	}
	set(http.MethodPut, "debug\n", http.StatusOK, "debug")
	if text := logged(); !strings.Contains(text, debug) {
		t.Errorf("at debug it logs %s, want more", text)
	}
	set(http.MethodPut, "loud", http.StatusBadRequest, "debug, info, warn or error")
	set(http.MethodGet, "", http.StatusOK, "debug")
	set(http.MethodPut, "error", http.StatusOK, "error")
	if text := logged(); text != "" {
		t.Errorf("at error it logs %s, want nothing", text)
	}
}

// A grant and its way to the client are counted, by function, route and result. Labels
// are ours: a caller's Host is none.
func TestGrantIsCounted(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "METRICS_ADDRESS=127.0.0.1:0")
	system.WantStatus(t, s.Grant("k", "u_1", "item1", "Host: made.up"), http.StatusOK)
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", "no token", ""), http.StatusUnauthorized)
	s.DeliverAll()
	text := s.Metrics()
	for _, want := range []string{
		`http_server_request_duration_seconds_count{faas_name="gateway",http_request_method="POST",http_response_status_code="200",http_route="/v1/entitlements/grants"} 1`,
		`http_server_request_duration_seconds_count{faas_name="grant",http_request_method="POST",http_response_status_code="200",http_route="/v1/entitlements/grants"} 1`,
		`http_server_request_duration_seconds_count{faas_name="gateway",http_request_method="GET",http_response_status_code="401",http_route="/v1/me"} 1`,
		`tick_items_total{cause="schedule",function="relay",outcome="done",source="entitlement"} 1`,
		`tick_items_total{cause="schedule",function="notify",outcome="claimed",source="entitlement.events"} 1`,
		`tick_duration_seconds_count{cause="schedule",function="deliver",result="ok"} 1`,
		`notification_sent_after_seconds_count{event_type="EntitlementGranted"} 1`,
		`notification_attempts_total{result="delivered"} 1`,
		`outbox_backlog{outbox="entitlement",status="PENDING"} 0`,
		`notification_backlog{status="FAILED"} 0`,
		`consumer_lag{subject="entitlement.events"} 0`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "made.up") {
		t.Error("a caller made up a label")
	}
}

// A process that ends sends its last spans, and the last metrics of stores before it
// leaves them.
func TestLastTracesAreSent(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s := system.Start(t, "WAKES=false", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
	s.Grant("k", "u_1", "item1", traceparent)
	s.Runtime.Close()
	c.mutex.Lock()
	spans, raw := len(c.spans), c.raw.String()
	c.mutex.Unlock()
	if spans == 0 {
		t.Error("the grant's spans were not sent")
	}
	if !strings.Contains(raw, "outbox.backlog") || strings.Contains(s.Log.String(), "were not sent") {
		t.Error("the last metrics lack the outbox's backlog")
	}
}
