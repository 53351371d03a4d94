package webhook_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/webhook"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

var secrets = []string{
	"whsec_" + base64.StdEncoding.EncodeToString([]byte("the-new-secret-of-32-bytes-12345")),
	"whsec_" + base64.StdEncoding.EncodeToString([]byte("the-old-secret-of-32-bytes-12345")),
}

// call is a request that a receiver got.
type call struct {
	header http.Header
	body   []byte
}

// receiver is a server that answers as a test wants, and records its calls.
type receiver struct {
	*httptest.Server
	mutex sync.Mutex
	calls []call
}

func listen(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mutex.Lock()
		r.calls = append(r.calls, call{request.Header.Clone(), body})
		r.mutex.Unlock()
		answer(w, request)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []call {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]call(nil), r.calls...)
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
	}
}

func setup(t testing.TB, urls ...string) *webhook.Channel {
	t.Helper()
	c, err := webhook.New(webhook.Options{URLs: urls, Secrets: secrets, AllowPrivate: true, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func outgoing() notification.Outgoing {
	return notification.Outgoing{
		ID: "n_01h455vb4pex5vsknk084sn02q", EventID: "e", EventType: "EntitlementGranted", UserID: "u_1", Attempt: 1,
		OccurredAt: time.Date(2026, 1, 8, 7, 10, 0, 0, time.UTC), Traceparent: "00-a-b-01", Payload: json.RawMessage(`{"version": 12}`),
	}
}

// Receivers verify with the reference library, with the new secret or the old.
func TestSignature(t *testing.T) {
	t.Parallel()
	r := listen(t, status(204))
	if err := setup(t, r.URL).Send(t.Context(), outgoing()); err != nil {
		t.Fatal(err)
	}
	got := r.got()[0]
	for i, secret := range secrets {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(got.body, got.header); err != nil {
			t.Errorf("secret %d: the signature does not verify: %v", i, err)
		}
		if err := verifier.Verify(append(got.body, ' '), got.header); err == nil {
			t.Errorf("secret %d: a changed body verifies", i)
		}
		forged := got.header.Clone()
		forged.Set("webhook-id", "n_other")
		if err := verifier.Verify(got.body, forged); err == nil {
			t.Errorf("secret %d: a changed id verifies", i)
		}
	}
	stranger, _ := standardwebhooks.NewWebhook("whsec_" + base64.StdEncoding.EncodeToString([]byte("some-other-secret-of-32-bytes-12")))
	if stranger.Verify(got.body, got.header) == nil {
		t.Error("a stranger's secret verifies")
	}
	var body map[string]any
	if err := json.Unmarshal(got.body, &body); err != nil || body["type"] != "EntitlementGranted" || body["timestamp"] != "2026-01-08T07:10:00Z" {
		t.Errorf("the body is %s, want the event's type and time", got.body)
	}
	data := body["data"].(map[string]any)
	if data["notification_id"] != outgoing().ID || data["user_id"] != "u_1" || data["payload"].(map[string]any)["version"] != 12.0 {
		t.Errorf("the body is %s, want the notification's id, user and payload", got.body)
	}
}

// The webhook-id is that of the notification, however often it is sent.
func TestStableID(t *testing.T) {
	t.Parallel()
	var answers sync.Once
	r := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		code := 200
		answers.Do(func() { code = 500 })
		w.WriteHeader(code)
	})
	pool := kit.Pool(t)
	const eventID = "0190a5a4-0000-7000-8000-000000000001"
	if _, err := notification.NewStore(pool).Accept(t.Context(), []event.Record{
		{ID: eventID, Type: "EntitlementGranted", OccurredAt: time.Now(), Payload: []byte(`{"user_id":"u_1"}`)},
	}); err != nil {
		t.Fatal(err)
	}
	deliverer := notification.NewDeliverer(pool, lease.DefaultPolicy, "test", setup(t, r.URL), slog.New(slog.DiscardHandler))
	for range 2 {
		if _, err := deliverer.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), `UPDATE notification.notifications SET next_retry_at = now()`); err != nil {
			t.Fatal(err)
		}
	}
	got := r.got()
	if len(got) != 2 || got[0].header.Get("webhook-id") == "" || got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") {
		t.Errorf("%d calls, want 2 with one webhook-id: %v", len(got), got)
	}
}

// verdict returns what a deliverer makes of a channel's answer: the status of the
// notification, and how long it waits. The kinds of errors are not exported.
func verdict(t testing.TB, c notification.Channel) (status string, wait time.Duration) {
	t.Helper()
	pool := kit.Pool(t)
	_, err := notification.NewStore(pool).Accept(t.Context(), []event.Record{
		{ID: "0190a5a4-0000-7000-8000-000000000001", Type: "EntitlementGranted", OccurredAt: time.Now(), Payload: []byte(`{"user_id":"u_1"}`)},
	})
	if err == nil {
		_, err = notification.NewDeliverer(pool, lease.DefaultPolicy, "test", c, slog.New(slog.DiscardHandler)).Step(t.Context())
	}
	var seconds float64
	if err == nil {
		err = pool.QueryRow(t.Context(), `SELECT status, extract(epoch FROM next_retry_at - now())::float8 FROM notification.notifications`).Scan(&status, &seconds)
	}
	if err != nil {
		t.Fatal(err)
	}
	return status, time.Duration(seconds * float64(time.Second))
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const usual = 1500 * time.Millisecond // the longest first backoff
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		status   string
		min, max time.Duration
	}{
		"200":                        {status(200), "SENT", -time.Hour, 0},
		"204":                        {status(204), "SENT", -time.Hour, 0},
		"400":                        {status(400), "PENDING", 0, usual},
		"404":                        {status(404), "PENDING", 0, usual},
		"410":                        {status(410), "FAILED", -time.Hour, 0},
		"410, whatever else it says": {status(410, "Retry-After: 60"), "FAILED", -time.Hour, 0},
		"429 after":                  {status(429, "Retry-After: 60"), "PENDING", 50 * time.Second, time.Minute},
		"429":                        {status(429), "PENDING", 0, usual},
		"500":                        {status(500), "PENDING", 0, usual},
		"503 after":                  {status(503, "Retry-After: 120"), "PENDING", 110 * time.Second, 2 * time.Minute},
		"503 after a date (RFC 9110)": {
			status(503, "Retry-After: "+time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat)),
			"PENDING", 9 * time.Minute, 10 * time.Minute,
		},
		"503 after nonsense":    {status(503, "Retry-After: soon"), "PENDING", 0, usual},
		"503 after less than 0": {status(503, "Retry-After: -5"), "PENDING", 0, usual},
		"503 after a year":      {status(503, "Retry-After: 31536000"), "PENDING", 50 * time.Minute, time.Hour},
		"503 after an overflow": {status(503, "Retry-After: 9223372036854775807"), "PENDING", 50 * time.Minute, time.Hour},
		"503 long ago":          {status(503, "Retry-After: -10000000000"), "PENDING", 0, usual}, // which overflows
		"302 is not delivered":  {status(302, "Location: /"), "PENDING", 0, usual},
		"cut off":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "PENDING", 0, usual},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, wait := verdict(t, setup(t, listen(t, test.answer).URL))
			if got != test.status || wait < test.min || wait > test.max {
				t.Errorf("%s in %s, want %s in %s to %s", got, wait, test.status, test.min, test.max)
			}
		})
	}
}

// A redirect is not followed: it could lead anywhere, with our signature.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := listen(t, status(200))
	for _, code := range []int{301, 302, 303, 307, 308} {
		r := listen(t, status(code, "Location: "+elsewhere.URL))
		if err := setup(t, r.URL).Send(t.Context(), outgoing()); err == nil {
			t.Errorf("a redirect %d counts as delivered", code)
		}
	}
	if n := len(elsewhere.got()); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// Every endpoint gets every notification, whatever the others answer.
func TestBrokenEndpointDoesNotStarveTheOthers(t *testing.T) {
	t.Parallel()
	for _, code := range []int{500, 410} {
		broken, healthy := listen(t, status(code)), listen(t, status(200))
		if err := setup(t, broken.URL, healthy.URL).Send(t.Context(), outgoing()); err == nil {
			t.Errorf("%d: delivered, though one endpoint does not have it", code)
		}
		if n := len(healthy.got()); n != 1 {
			t.Errorf("%d: the healthy endpoint got it %d times, want 1", code, n)
		}
	}
}

// A receiver's machine vanishes without a word, and another one takes over: the connection
// to the first, on which HTTP/2 would send all requests, is given up within seconds.
func TestSilentConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	r := httptest.NewUnstartedServer(status(200))
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(r.Close)
	link, through := kit.Through(t, r.URL)
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	c := setup(t, through)
	c.Trust(roots)
	kit.Must(t, c.Send(t.Context(), outgoing()))
	link.When("", func() bool { <-t.Context().Done(); return true }) // nothing more comes through the first one
	if c.Send(t.Context(), outgoing()) == nil {
		t.Fatal("the first connection was not silent")
	}
	kit.Within(t, 20*time.Second, "webhooks arrive on another connection", func() bool { return c.Send(t.Context(), outgoing()) == nil })
}

// A receiver that never answers, or never ends its answer, holds up Send for a bounded
// time.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				kit.Pause(5 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := webhook.New(webhook.Options{URLs: []string{listen(t, answer).URL}, Secrets: secrets, AllowPrivate: true, Timeout: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = c.Send(t.Context(), outgoing())
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("Send took %s, want 3s at most", took)
			}
			if name == "silent" && err == nil {
				t.Error("a receiver that never answers counts as delivered")
			}
		})
	}
	t.Run("the lease's end", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r := listen(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		if err := setup(t, r.URL).Send(ctx, outgoing()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send: %v, want DeadlineExceeded", err)
		}
	})
}
