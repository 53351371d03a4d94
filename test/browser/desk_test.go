//go:build browser

package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions/console"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// receiver is where webhooks go. While it is down it answers 503.
type receiver struct {
	*httptest.Server
	down  atomic.Bool
	mutex sync.Mutex
	taken map[string]int // how often, by the message's id
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{taken: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if r.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.taken[request.Header.Get("Webhook-Id")]++
	}))
	t.Cleanup(r.Close)
	return r
}

// once reports whether n messages arrived, each once.
func (r *receiver) once(n int) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, times := range r.taken {
		if times != 1 {
			return false
		}
	}
	return len(r.taken) == n
}

// setupDesk starts a site whose notifications go to a receiver, twice at most before they
// are FAILED.
func setupDesk(t testing.TB) (*site, *receiver) {
	t.Helper()
	r := newReceiver(t)
	s := setupSite(t, "NOTIFICATION_CHANNEL=webhook", "WEBHOOK_URLS="+r.URL, "WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"WEBHOOK_ALLOW_PRIVATE=true", "DELIVERY_MAX_ATTEMPTS=2", "LEASE_BACKOFF_BASE=10ms", "LEASE_BACKOFF_CAP=10ms", "MATCHMAKING_MODES=casual,rank")
	s.Operator = identity.Token(t, s.issuer.URL(), issuer.OpsClientID, issuer.OpsClientSecret)
	return s, r
}

// atConsole signs somebody in on the way to a page of the console.
func (s *site) atConsole(t testing.TB, name, path string) *tab {
	t.Helper()
	b := s.browse(t)
	b.do(chromedp.Navigate(s.origin + path))
	b.until("the issuer's form has the focus", "document.activeElement?.id === 'username'")
	b.atIssuer(name)
	b.until("the page asked for is there", fmt.Sprintf("location.pathname === %q && document.readyState === 'complete'", path))
	return b
}

// fail makes n FAILED notifications of a user.
func (s *site) fail(n int, user string) {
	s.T.Helper()
	_, err := s.Pool.Exec(s.T.Context(), `
		INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, attempt_count, finished_at, last_error)
		SELECT gen_random_uuid(), gen_random_uuid(), $2, 'EntitlementGranted', '{"event_type":"EntitlementGranted","stock_keeping_unit":"sword"}', now(), 'FAILED', 10, now(),
			'The endpoint answered 503 Service Unavailable.' FROM generate_series(1, $1)`, n, user)
	kit.Must(s.T, err)
}

// sample writes samples of the last hours: traffic that goes up and down, with some noise.
func (s *site) sample() {
	s.T.Helper()
	client := s.QueueClient()
	defer client.Close()
	noise, drift := rand.New(rand.NewPCG(1, 2)), 0.
	now := time.Now().UTC().Truncate(10 * time.Second).Add(-20 * time.Second)
	for i := 1080; i > 0; i-- {
		at := now.Add(-time.Duration(i) * 10 * time.Second)
		drift = drift*.95 + noise.NormFloat64()*.02
		wave := 1 + math.Sin(float64(i)/170)*.5 + drift
		text, err := json.Marshal(console.Sample{
			At: at, Changes: 40 * wave, Sent: 39 * wave, SentP50MS: int64(9 * wave), SentP99MS: int64(31 * wave * wave), Transfers: 12 * wave,
			LagMS: int64(6 * wave), Waiting: int(7 * wave), MatchMS: int64(1400 * wave),
		})
		kit.Must(s.T, err)
		kit.Must(s.T, client.XAdd(context.Background(), &redis.XAddArgs{Stream: "console:samples", ID: fmt.Sprintf("%d-1", at.UnixMilli()), Values: []any{"sample", text}}).Err())
	}
}

// stuck fills every page of the console, and returns their paths.
func (s *site) stuck(r *receiver) (paths []string) {
	s.T.Helper()
	s.sample()
	s.Schedule() // takes samples, which are in the order of time
	token := identity.Token(s.T, s.issuer.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	user := s.UserID(token)
	system.WantStatus(s.T, s.Grant("k0", user, "shield"), http.StatusOK)
	kit.Eventually(s.T, "a notification is SENT", func() bool { return s.notifications("SENT") == 1 })
	r.down.Store(true)
	system.WantStatus(s.T, s.Grant("k1", user, "sword"), http.StatusOK)
	s.Opened(s.Operator, user, "12.5")
	s.Joined(token, "casual", "j1", `{}`)
	s.fail(40, user)
	for _, message := range []string{"<b>no event</b>", "\xff\x00"} {
		_, err := s.Pool.Exec(s.T.Context(), `INSERT INTO notification.notification_dlq (event_id, event_type, raw_message, raw_headers, error)
			VALUES ('', 'com.example.foreign', $1, '{"ce-type":["com.example.foreign"]}', 'The message has no data that this version can read.')`, []byte(message))
		kit.Must(s.T, err)
	}
	a := s.Call(http.MethodPost, "/v1/operations/acts", s.Operator,
		`{"kind":"requeue","queue":"notifications","filter":{"owner":"`+user+`"},"reason":"INC-42: the receiver is back","at_most":1000,"per_second":1}`, "Idempotency-Key: k1")
	system.WantStatus(s.T, a, http.StatusCreated)
	return []string{
		"/console", "/console/queues/notifications", "/console/queues/notification-letters", "/console/queues/transfer-outbox", "/console/acts", "/console/acts/" + a.Text("act_id"),
		"/console/people", "/console/people/" + user, "/console/people/" + user + "/items/sword", "/console/money", "/console/settings", "/console/nowhere",
	}
}

func (s *site) notifications(status string) int {
	s.T.Helper()
	return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = $1`, status)
}
