package image_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/image/compose"
	"github.com/miniserversystem/miniserver/test/kit"
)

// composed are the arguments and the environment that compose.yaml gives a service,
// with the servers of the test in place of those of compose.
func composed(t testing.TB, service string, instead map[string]string) ([]string, map[string]string) {
	t.Helper()
	content, err := os.ReadFile("compose.yaml")
	kit.Must(t, err)
	project, err := compose.Load(t.Context(), "compose.yaml", content)
	kit.Must(t, err)
	environment := map[string]string{}
	for name, value := range project.Services[service].Environment {
		environment[name] = *value
	}
	for name := range instead {
		if _, given := environment[name]; !given && name != "PORT" {
			t.Fatalf("compose.yaml does not give %s to %s", name, service)
		}
	}
	maps.Copy(environment, instead)
	return project.Services[service].Command, environment
}

// servers are those of one test.
type servers struct {
	environment map[string]string // how miniserver reaches them
	database    string            // empty, but for what migrate makes
	tokens      string            // the issuer's address for this process
	address     string            // where miniserver will be
}

// startServers starts them; at is the issuer's URL, with the port in place of %d.
func startServers(t testing.TB, at string) servers {
	t.Helper()
	plain, theirs := kit.Listen(t), kit.Listen(t)
	name := fmt.Sprintf(at, theirs.Addr().(*net.TCPAddr).Port)
	if strings.HasPrefix(at, "https:") {
		authority, err := theAuthority()
		kit.Must(t, err)
		certificate, err := authority.forLoopback()
		kit.Must(t, err)
		theirs = tls.NewListener(theirs, &tls.Config{Certificates: []tls.Certificate{certificate}})
	}
	provider, err := issuer.New(issuer.Options{URL: name})
	kit.Must(t, err)
	server := &http.Server{Handler: provider.Handler(), ReadHeaderTimeout: kit.Patience, ErrorLog: quiet}
	for _, listener := range []net.Listener{plain, theirs} {
		go func() { _ = server.Serve(listener) }()
	}
	t.Cleanup(func() { _ = server.Close() })
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	s := servers{database: emptyDatabase(t), tokens: "http://" + plain.Addr().String(), address: fmt.Sprintf("http://127.0.0.1:%d", port)}
	s.environment = map[string]string{
		"REDIS_URL": kit.Redis(t).URL(), "NATS_URL": kit.NATS(t).URL(),
		"OIDC_ISSUER": name, "GATEWAY_URL": s.address, "PORT": strconv.Itoa(port),
		"METRICS_ADDRESS": "127.0.0.1:0", // make run may have compose's port
	}
	maps.Copy(s.environment, logins(s.database))
	return s
}

// logins are the settings that lead to a database in the roles of compose.yaml.
func logins(database string) map[string]string {
	environment := map[string]string{"DATABASE_URL": database}
	kit.LeastRights(environment)
	return environment
}

// emptyDatabase is one in which nothing has been migrated.
func emptyDatabase(t testing.TB) string {
	t.Helper()
	address := kit.Database(t)
	pool := kit.Connect(t, address)
	rows, err := pool.Query(context.Background(), `SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'`)
	kit.Must(t, err)
	var schemas []string
	for rows.Next() {
		var schema string
		kit.Must(t, rows.Scan(&schema))
		schemas = append(schemas, schema)
	}
	kit.Must(t, rows.Err())
	for _, schema := range schemas {
		_, err := pool.Exec(context.Background(), `DROP SCHEMA "`+schema+`" CASCADE`)
		kit.Must(t, err)
	}
	_, err = pool.Exec(context.Background(), `CREATE SCHEMA public`)
	kit.Must(t, err)
	return address
}

// What compose.yaml starts works under runc: migrate brings an empty database up to
// date and ends, then all functions in one process get ready and grant something, as
// nobody, without a capability, on a root that is read only; the health check says so;
// SIGTERM ends them well.
func TestComposedUnderRunc(t *testing.T) {
	t.Parallel()
	// The issuer has the name of compose.yaml, which only the container's hosts know.
	r, s := theRunc(t), startServers(t, "http://keycloak.localhost:%d")

	owner := map[string]string{"MIGRATION_DATABASE_URL": s.database}
	maps.Copy(owner, logins(s.database))
	migrate := r.run(t, bundle(t, "migrate", owner))
	if err := <-migrate.ended; err != nil {
		t.Fatalf("migrate: %v", err)
	}

	unpacked := bundle(t, "miniserver", s.environment)
	began := time.Now()
	serve := r.run(t, unpacked)
	kit.Eventually(t, "liveness", func() bool { return get(t, s.address+"/health/liveness") == http.StatusOK })
	live := time.Since(began)
	kit.Eventually(t, "readiness", func() bool { return get(t, s.address+"/health/readiness") == http.StatusOK })
	t.Logf("runc run to the first 200 of liveness: %d ms, of readiness: %d ms", live.Milliseconds(), time.Since(began).Milliseconds())

	if out, err := serve.exec(program, "ready"); err != nil || out != "" {
		t.Errorf("the health check: %v %s", err, out)
	}
	serve.wantNobody()
	if answer, status := s.grant(t); status != http.StatusOK || !strings.Contains(answer, `"ACTIVE"`) {
		t.Errorf("a grant: %d %s", status, answer)
	}
	for _, shell := range []string{"/bin/sh", "/bin/bash", "/busybox/sh"} {
		if out, err := serve.exec(shell, "-c", "true"); err == nil || !strings.Contains(out, "no such file") {
			t.Errorf("exec %s: %v %s", shell, err, out)
		}
	}

	kit.Must(t, r.command("kill", serve.id, "TERM").Run())
	select {
	case err := <-serve.ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(kit.Patience):
		t.Fatal("it does not end")
	}
}

// Servers are verified with the certificates of the base: an issuer that only the base's
// authority vouches for is trusted.
func TestCertificatesOfTheBase(t *testing.T) {
	t.Parallel()
	r, s := theRunc(t), startServers(t, "https://127.0.0.1:%d")
	s.database = kit.Database(t)
	maps.Copy(s.environment, logins(s.database))
	r.run(t, bundle(t, "miniserver", s.environment))
	kit.Eventually(t, "readiness", func() bool { return get(t, s.address+"/health/readiness") == http.StatusOK })
	if answer, status := s.grant(t); status != http.StatusOK {
		t.Errorf("a grant: %d %s", status, answer)
	}
}

// wantNobody checks the user and the rights of the process, as the kernel reports them.
func (c *container) wantNobody() {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid()))
	kit.Must(c.t, err)
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.Join(strings.Fields(value), " ")
	}
	for name, want := range map[string]string{
		"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532", "Groups": "",
		"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1",
	} {
		if status[name] != want {
			c.t.Errorf("the process has %s %q, want %q", name, status[name], want)
		}
	}
}

// grant gives u_1 something, as the purchase service.
func (s servers) grant(t testing.TB) (string, int) {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}}
	ask, err := http.NewRequest(http.MethodPost, s.tokens+"/token", strings.NewReader(form.Encode()))
	kit.Must(t, err)
	ask.SetBasicAuth(issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	ask.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var token struct {
		AccessToken string `json:"access_token"`
	}
	text, status := send(t, ask)
	if kit.Must(t, json.Unmarshal([]byte(text), &token)); token.AccessToken == "" {
		t.Fatalf("no token: %d %s", status, text)
	}
	body := `{"user_id":"u_1","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_1"}`
	request, err := http.NewRequest(http.MethodPost, s.address+"/v1/entitlements/grants", strings.NewReader(body))
	kit.Must(t, err)
	request.Header = http.Header{
		"Authorization": {"Bearer " + token.AccessToken}, "Content-Type": {"application/json"}, "Idempotency-Key": {"p_1"},
	}
	return send(t, request)
}
