//go:build func

package funccli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
)

// One `func run` is the whole backend: a grant by request and one by CloudEvent from
// `func invoke` both reach the inbox.
func TestRunTogether(t *testing.T) {
	t.Parallel()
	s := setup(t)
	address := freeAddress(t)
	all := run(t, address, append(s.environment, "GATEWAY_URL=http://"+address)...)
	wantHealthy(t, all.url)
	s.grant(all.url, "u_1", "k1")
	s.wantNotified("u_1")

	// The CLI sends no token; as in front of any service, a proxy adds it.
	gateway, err := url.Parse(all.url)
	kit.Must(t, err)
	signed := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(gateway)
		r.Out.Header.Set("Authorization", "Bearer "+s.token)
	}})
	t.Cleanup(signed.Close)
	for range 2 { // the second time it is the same event
		all.invoke("--target", signed.URL+"/v1/events", "--format", "cloudevent", "--type", "purchase.completed", "--source", "/shop", "--id", "b-1",
			"--data", `{"user_id":"u_2","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_1"}`)
	}
	s.wantNotified("u_2")
	if n := s.count(`SELECT version FROM entitlement.entitlements WHERE user_id = 'u_2'`); n != 1 {
		t.Errorf("version %d after one event sent twice, want 1", n)
	}
	all.terminate()
}

// Functions side by side, each a `func run` of its own: ticks from `func invoke` alone
// carry a grant through them to a notification.
func TestRunSideBySide(t *testing.T) {
	t.Parallel()
	s := setup(t)
	private, public, err := auth.NewKeyPair()
	kit.Must(t, err)
	names := []string{"grant", "relay", "notify", "deliver"}
	functions, addresses := map[string]*running{}, []string{}
	for _, name := range names {
		address := freeAddress(t)
		functions[name] = run(t, address, append(s.environment, "FUNCTION="+name, "IDENTITY_VERIFY_KEYS="+public)...)
		addresses = append(addresses, name+"="+functions[name].url)
		wantHealthy(t, functions[name].url)
	}
	address := freeAddress(t)
	gateway := run(t, address, append(s.environment, "FUNCTION=gateway", "GATEWAY_URL=http://"+address,
		"IDENTITY_SIGNING_KEY="+private, "FUNCTION_URL="+strings.Join(addresses, ","))...)
	s.grant(gateway.url, "u_1", "k1")

	// Like a PingSource: an event to the root path; the CLI finds the running function.
	functions["relay"].invoke("--format", "cloudevent", "--type", "dev.knative.sources.ping", "--source", "/ping", "--id", "1")
	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'PUBLISHED'`); n != 1 {
		t.Fatalf("%d events are PUBLISHED after relay's tick, want 1", n)
	}
	for _, name := range []string{"notify", "deliver"} {
		if out := functions[name].invoke("--target", functions[name].url+"/tick"); !strings.Contains(out, `"done":1`) {
			t.Fatalf("the tick of %s answered %s, want one done", name, out)
		}
	}
	s.wantNotified("u_1")

	// Without the gateway's statement no caller is believed.
	response, err := http.Post(functions["grant"].url+"/v1/entitlements/grants", "application/json", strings.NewReader("{}"))
	kit.Must(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a grant without a statement is answered %s, want 401", response.Status)
	}
	gateway.terminate()
	for _, name := range names {
		functions[name].terminate()
	}
}

// SIGTERM during a tick: the tick stops claiming, and its caller is answered.
func TestSIGTERMDuringATick(t *testing.T) {
	t.Parallel()
	s := setup(t)
	relay := run(t, freeAddress(t), append(s.environment, "FUNCTION=relay", "TICK_LINGER=25s", "TICK_BUDGET=25s")...)
	answered := make(chan error, 1)
	go func() {
		response, err := http.Post(relay.url+"/tick", "", nil)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("answered %s", response.Status)
			}
		}
		answered <- err
	}()
	kit.Pause(300 * time.Millisecond) // the tick lingers by now; SIGTERM earlier would only test less
	began := time.Now()
	relay.terminate()
	kit.Must(t, <-answered)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ending took %s", took)
	}
}

// A missing setting prints one line and ends `func run`.
func TestRunSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	out, err := cli(t, tree(t), "run", "--address", freeAddress(t), "-e", "FUNCTION=grant").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "miniserver: function grant needs DATABASE_URL") {
		t.Fatalf("func run returned %v and printed %s", err, out)
	}
}
