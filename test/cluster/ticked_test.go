//go:build knative

package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/cluster"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

// ticked starts the functions that a grant passes through as kubelet would, writes a
// grant, and forwards Knative's ticks to one function after the other: each does its part
// then and not before. Wakes go to names that do not resolve here.
func ticked(t *testing.T, c *cluster.Cluster, ingress *cluster.Ingress) {
	database := kit.Database(t)
	pool := kit.Connect(t, database)
	k := kubelet{c: c, dir: t.TempDir(), here: map[string]string{
		"REDIS_URL": kit.Redis(t).URL(), "NATS_URL": kit.NATS(t).URL(), "OIDC_ISSUER": identity.Issuer(t),
		"ACCOUNT_DATABASE_URL": database, "ENTITLEMENT_DATABASE_URL": database,
		"NOTIFICATION_DATABASE_URL": database, "TRANSFER_DATABASE_URL": database,
	}}
	k.serve = filepath.Join(k.dir, "serve")
	build := exec.Command("nice", "-n", "10", "go", "build", "-o", k.serve, "./infra/miniserver")
	if printed, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, printed)
	}
	at := map[string]*url.URL{}
	for _, function := range []string{"grant", "relay", "notify", "deliver"} {
		at[function] = k.start(t, function)
	}
	// Only the gateway has to find another function.
	k.here["FUNCTION_URL"] = "grant=" + at["grant"].String()
	gateway := k.start(t, "gateway")

	grant(t, gateway, identity.Issuer(t))
	for _, stage := range []struct{ function, before, after string }{
		{"relay", "PENDING, none, none", "PUBLISHED, none, none"},
		{"notify", "PUBLISHED, none, none", "PUBLISHED, PENDING, none"},
		{"deliver", "PUBLISHED, PENDING, none", "PUBLISHED, SENT, sent"},
	} {
		// Two ticks reach nobody: whatever happens now happens without them.
		seen := len(ingress.Ticks(stage.function))
		cluster.Until(t, "ticks of "+stage.function, patient, func() error {
			if n := len(ingress.Ticks(stage.function)) - seen; n < 2 {
				return fmt.Errorf("%d of 2 ticks", n)
			}
			return nil
		})
		if is := state(t, pool); is != stage.before {
			t.Errorf("before %s was ticked: %s, want %s", stage.function, is, stage.before)
		}
		ingress.Open(stage.function, at[stage.function])
		cluster.Until(t, stage.function+"'s work", patient, func() error {
			if is := state(t, pool); is != stage.after {
				return fmt.Errorf("%s, want %s", is, stage.after)
			}
			return nil
		})
		t.Logf("%s is ticked: %s", stage.function, stage.after)
		for _, r := range ingress.Ticks(stage.function) {
			if r.Method != http.MethodPost || r.URL.Path != "/tick" || r.Header.Get("Ce-Type") != "dev.knative.sources.ping" ||
				r.Header.Get("Ce-Source") != "/apis/v1/namespaces/miniserver/pingsources/"+stage.function {
				t.Errorf("not a tick of %s's PingSource: %s %s %v", stage.function, r.Method, r.URL, r.Header)
			}
		}
	}
}

// kubelet starts containers' commands as processes.
type kubelet struct {
	c          *cluster.Cluster
	dir, serve string
	here       map[string]string // replaces variables that hold an address in the cluster
}

// start starts a function with the environment of its Deployment's container, and returns
// its URL when the container's own probe succeeds.
func (k kubelet) start(t *testing.T, function string) *url.URL {
	t.Helper()
	made, err := deployment(k.c, function)
	if err != nil {
		t.Fatal(err)
	}
	container := named(made.Spec.Template.Spec, "function")
	values, err := k.c.Environment(namespace, *container)
	if err != nil {
		t.Fatal(err)
	}
	port, err := proc.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	for name := range maps.Keys(k.here) {
		// A variable that the container does not have is not added.
		if _, given := values[name]; given {
			values[name] = k.here[name]
		}
	}
	values["PORT"] = fmt.Sprint(port)
	var environment []string
	for name, value := range values {
		environment = append(environment, name+"="+value)
	}
	process := cluster.Run(t, k.dir, function, environment, k.serve)
	at := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	var probe struct{ HTTPGet struct{ Path string } }
	decode(t, json.RawMessage(variable(named(made.Spec.Template.Spec, "queue-proxy"), "SERVING_READINESS_PROBE")), &probe)
	cluster.Until(t, function, patient, func() error {
		_, err := answer(http.Get(at.String() + probe.HTTPGet.Path))
		return err
	}, process)
	return at
}

// grant sends a grant, as the purchase service.
func grant(t *testing.T, gateway *url.URL, issuerURL string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, gateway.JoinPath("/v1/entitlements/grants").String(),
		bytes.NewBufferString(`{"user_id":"u_1","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_1"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+identity.Token(t, issuerURL, issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "p_1")
	if _, err := answer(http.DefaultClient.Do(request)); err != nil {
		t.Fatal(err)
	}
}

// answer returns the body of a 200.
func answer(response *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}

// state returns the statuses of the grant's event and its notification.
func state(t *testing.T, pool *pgxpool.Pool) (is string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT concat_ws(', ',
		(SELECT string_agg(status, '+') FROM entitlement.outbox_events),
		coalesce((SELECT string_agg(status, '+') FROM notification.notifications), 'none'),
		coalesce((SELECT string_agg('sent', '+') FROM notification.notifications WHERE sent_at IS NOT NULL), 'none'))`).Scan(&is)
	if err != nil {
		t.Fatal(err)
	}
	return is
}
