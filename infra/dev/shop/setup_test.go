package shop_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/shop"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// site is the whole system with the shop in front, on one origin, and an issuer.
type site struct {
	t        testing.TB
	origin   string
	pool     *pgxpool.Pool
	issuer   *issuer.Server
	settings settings.Settings
	gateway  atomic.Value // the http.Handler behind the shop
}

// setup starts a site. change may change the shop's options.
func setup(t testing.TB, change func(*site, *shop.Options)) *site {
	t.Helper()
	listener := listen(t, "")
	s := &site{t: t, origin: "http://" + listener.Addr().String()}
	s.startIssuer(listen(t, ""))
	database := kit.Database(t)
	s.pool = kit.Connect(t, database)
	private, public, err := auth.NewKeyPair()
	kit.Must(t, err)
	s.settings, err = settings.LoadFrom(map[string]string{
		"DATABASE_URL": database, "NATS_URL": kit.NATS(t).URL(), "REDIS_URL": kit.Redis(t).URL(), "GATEWAY_URL": s.origin,
		"OIDC_ISSUER": s.issuer.URL(), "OIDC_CLIENT_SECRET": issuer.WebClientSecret, "IDENTITY_SIGNING_KEY": private, "IDENTITY_VERIFY_KEYS": public,
	})
	kit.Must(t, err)
	s.startGateway()
	o := shop.Options{
		GatewayURL: s.origin, IssuerURL: s.issuer.URL(),
		ClientID: issuer.PurchaseServiceClientID, ClientSecret: issuer.PurchaseServiceClientSecret,
	}
	if change != nil {
		change(s, &o)
	}
	goods, err := shop.New(o)
	kit.Must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/demo/", goods)
	mux.HandleFunc("/", s.serveGateway)
	serve(t, listener, mux)
	return s
}

// startGateway starts all functions, or restarts them.
func (s *site) startGateway() {
	s.t.Helper()
	runtime := fn.NewRuntime(s.settings, slog.New(slog.DiscardHandler), functions.All)
	s.t.Cleanup(runtime.Close)
	handler, err := functions.Together(runtime)
	kit.Must(s.t, err)
	s.gateway.Store(handler)
}

func (s *site) serveGateway(w http.ResponseWriter, r *http.Request) {
	s.gateway.Load().(http.Handler).ServeHTTP(w, r)
}

func (s *site) startIssuer(listener net.Listener) {
	s.t.Helper()
	var err error
	s.issuer, err = issuer.Start(context.Background(), listener, issuer.Options{RedirectURIs: []string{s.origin + "/login/callback"}})
	kit.Must(s.t, err)
	server := s.issuer
	s.t.Cleanup(func() { _ = server.Stop() })
}

// listen listens on a loopback address; "" means a free one.
func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	for tries := 5; ; tries-- { // somebody else may take the port in between
		want := address
		if want == "" {
			port, err := proc.FreePort(0)
			kit.Must(t, err)
			want = (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
		}
		listener, err := net.Listen("tcp", want)
		if err == nil {
			return listener
		}
		if tries == 0 {
			t.Fatal(err)
		}
	}
}

func serve(t testing.TB, listener net.Listener, handler http.Handler) (origin string) {
	t.Helper()
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// signIn returns a client with a user's session.
func (s *site) signIn(name string) *http.Client {
	s.t.Helper()
	b := browser.New()
	response, err := b.SignIn(s.origin+"/login?return_to=/docs", name, name)
	kit.Must(s.t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		s.t.Fatalf("sign-in of %s: %s", name, response.Status)
	}
	return b.Client()
}

// send posts to the shop as a page does; headers are "Name: value", and an empty
// value leaves one out.
func (s *site) send(client *http.Client, path, body string, headers ...string) (int, map[string]any) {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodPost, s.origin+path, strings.NewReader(body))
	kit.Must(s.t, err)
	for _, header := range append([]string{"Content-Type: application/json", "X-CSRF: 1", "Sec-Fetch-Site: same-origin"}, headers...) {
		name, value, _ := strings.Cut(header, ":")
		request.Header.Set(name, strings.TrimSpace(value))
	}
	response, err := client.Do(request)
	kit.Must(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	kit.Must(s.t, err)
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		s.t.Fatalf("answered %d %s: %v", response.StatusCode, text, err)
	}
	return response.StatusCode, answer
}

const sword = `{"stock_keeping_unit": "sword"}`

func (s *site) count(sql string, args ...any) (n int) {
	s.t.Helper()
	kit.Must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func decode(t testing.TB, body io.Reader, out any) {
	t.Helper()
	kit.Must(t, json.NewDecoder(body).Decode(out))
}
