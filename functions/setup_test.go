package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// system is everything in one process, on a database, a Redis and a NATS of the
// test's own.
type system struct {
	t       testing.TB
	url     string // the gateway's
	pool    *pgxpool.Pool
	redis   *dev.Redis
	dir     string // Redis's
	nats    *dev.NATS
	runtime *fn.Runtime
	writer  string // access token of the purchase service
	ops     string // access token of an operator
	log     *safeBuffer
	seen    *answers
}

// setup starts a system without a schedule: tests tick it, or let wakes do it.
// environment overrides its settings.
func setup(t testing.TB, environment ...string) *system {
	t.Helper()
	s := start(t, kit.Listen(t), append([]string{"OIDC_ISSUER=" + identity.Issuer(t)}, environment...)...)
	s.writer = identity.Token(t, identity.Issuer(t), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	s.ops = identity.Token(t, identity.Issuer(t), issuer.OpsClientID, issuer.OpsClientSecret)
	return s
}

// start starts a system on listener.
func start(t testing.TB, listener net.Listener, environment ...string) *system {
	t.Helper()
	s, values := stores(t, listener, environment...)
	// Tests cannot wait for as long as settings ask for at least.
	reconcileAfter := values["RECONCILE_AFTER"]
	delete(values, "RECONCILE_AFTER")
	loaded, err := settings.LoadFrom(values)
	must(t, err)
	if reconcileAfter != "" {
		loaded.ReconcileAfter, err = time.ParseDuration(reconcileAfter)
		must(t, err)
	}
	s.runtime = fn.NewRuntime(loaded, telemetry.NewLogger(s.log, loaded.LogLevel), functions.All)
	handler, err := functions.Together(s.runtime)
	must(t, err)
	s.serveOn(listener, handler, s.runtime)
	return s
}

// serveOn serves a handler until the test ends, and then closes what is behind it.
func (s *system) serveOn(listener net.Listener, handler http.Handler, runtimes ...*fn.Runtime) {
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: documented(s.t, handler, s.seen)}}
	server.Start()
	s.t.Cleanup(func() {
		server.Close()
		for _, runtime := range runtimes {
			runtime.Close()
		}
		if s.t.Failed() {
			s.t.Logf("log:\n%s", s.log.tail(8000))
		}
	})
}

// stores starts the stores of a system, and returns settings that lead to them, with
// the rights of a process that holds all functions.
func stores(t testing.TB, listener net.Listener, environment ...string) (*system, map[string]string) {
	t.Helper()
	s := &system{t: t, nats: kit.NATS(t, functions.Users()), log: &safeBuffer{}, dir: t.TempDir(), seen: &answers{seen: map[string]bool{}}}
	s.redis = kit.StartRedis(t, s.dir, functions.Users())
	database := kit.Database(t)
	s.pool = kit.Connect(t, database)
	private, public, err := auth.NewKeyPair()
	must(t, err)
	s.url = "http://" + listener.Addr().String()
	values := map[string]string{
		"DATABASE_URL": database, "NATS_URL": s.nats.URLAs(functions.TogetherUser), "REDIS_URL": s.redis.URLAs(functions.TogetherUser),
		"GATEWAY_URL": s.url, "OIDC_CLIENT_SECRET": issuer.WebClientSecret,
		"DEBUG_ENDPOINTS": "true", "IDENTITY_SIGNING_KEY": private, "IDENTITY_VERIFY_KEYS": public,
		"LOG_LEVEL": "debug",
	}
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	kit.LeastRights(values)
	return s, values
}

// answer is a response that was read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// json decodes the body, strictly enough for tests.
func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("status %d, not JSON: %q", a.status, a.body)
	}
	return v
}

// call sends a request to the gateway; headers are "Name: value".
func (s *system) call(method, path, token, body string, headers ...string) answer {
	s.t.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header[http.CanonicalHeaderKey(name)] = append(request.Header[http.CanonicalHeaderKey(name)], value)
		if http.CanonicalHeaderKey(name) == "Content-Type" {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	must(s.t, err)
	return answer{response.StatusCode, response.Header, read}
}

// grant grants item to user with key, as the purchase service.
func (s *system) grant(key, user, item string, headers ...string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, "/v1/entitlements/grants", s.writer, changeBody(user, item, "purchase", "p_"+key), append(headers, "Idempotency-Key: "+key)...)
}

func (s *system) revoke(key, user, item string, headers ...string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, "/v1/entitlements/revokes", s.writer, changeBody(user, item, "refund", "p_"+key), append(headers, "Idempotency-Key: "+key)...)
}

func changeBody(user, item, reason, purchase string) string {
	body, err := json.Marshal(map[string]string{"user_id": user, "stock_keeping_unit": item, "reason": reason, "purchase_id": purchase})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// tick runs a function's tick and returns its report.
func (s *system) tick(function string) lease.Report {
	s.t.Helper()
	report, answered := s.try(function)
	if answered != "" {
		s.t.Fatalf("tick of %s: %s", function, answered)
	}
	return report
}

// try is tick for one that may fail; then it says what it answered.
func (s *system) try(function string) (report lease.Report, answered string) {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+function+tick.Path, http.NoBody)
	must(s.t, err)
	response, err := s.runtime.Invoke.RoundTrip(request)
	must(s.t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return report, fmt.Sprintf("%d %s", response.StatusCode, body)
	}
	must(s.t, json.NewDecoder(response.Body).Decode(&report))
	return report, ""
}

// count returns the one number that a query answers.
func (s *system) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// eventually waits until ok, at most within.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// safeBuffer is a log that several goroutines write to.
type safeBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

func (b *safeBuffer) tail(n int) string {
	text := b.String()
	return text[max(0, len(text)-n):]
}
