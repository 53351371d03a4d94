package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

func TestMain(m *testing.M) {
	code := kit.Main(m)
	program.Clean()
	os.Exit(code)
}

// process is the program, running under a Runtime API of its own.
type process struct {
	*runtimeServer
	*program.Program
}

// startProcess starts the program with this environment only.
func startProcess(t testing.TB, environment map[string]string) *process {
	t.Helper()
	// As make lambda builds it, for this machine.
	command := exec.Command(program.Build(t, ".", ".", "-tags=lambda.norpc"))
	p := &process{runtimeServer: startRuntime(t)}
	command.Env = []string{"AWS_LAMBDA_RUNTIME_API=" + p.address}
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		command.Env = append(command.Env, name+"="+environment[name])
	}
	p.Program = program.Start(t, command)
	return p
}

// wantEnd waits for the end of the process.
func (p *process) wantEnd(within time.Duration) error {
	p.t.Helper()
	select {
	case <-p.Ended:
		return p.Err()
	case <-time.After(within):
		p.t.Fatalf("the process has not ended within %s", within)
		return nil
	}
}

// system is the servers of one test, and the settings that lead to them.
type system struct {
	t           testing.TB
	pool        *pgxpool.Pool
	environment map[string]string
	writer, ops string // access tokens of the purchase service and of an operator
}

func setup(t testing.TB) *system {
	t.Helper()
	database := kit.Database(t)
	return &system{
		t: t, pool: kit.Connect(t, database),
		environment: map[string]string{
			"DATABASE_URL": database, "NATS_URL": kit.NATS(t).URL(), "REDIS_URL": kit.Redis(t).URL(),
			"OIDC_ISSUER": identity.Issuer(t), "OIDC_CLIENT_SECRET": issuer.WebClientSecret, "GATEWAY_URL": "https://" + urlHost,
			"SCHEDULE": "off", "WAKES": "false",
		},
		writer: identity.Token(t, identity.Issuer(t), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret),
		ops:    identity.Token(t, identity.Issuer(t), issuer.OpsClientID, issuer.OpsClientSecret),
	}
}

// start starts a process on the servers of s; further settings are "NAME=value".
func (s *system) start(further ...string) *process {
	s.t.Helper()
	environment := maps.Clone(s.environment)
	for _, pair := range further {
		name, value, _ := strings.Cut(pair, "=")
		environment[name] = value
	}
	return startProcess(s.t, environment)
}

// count returns the one number that a query returns.
func (s *system) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	kit.Must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

const (
	urlHost = "abcdefghijklmnop.lambda-url.eu-central-1.on.aws"
	apiHost = "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
)

// request is an HTTP event, as far as tests differ in it.
type request struct {
	method, path, query, body string
	encoded                   bool
	headers                   map[string]string
	cookies                   []string
	sourceIP                  string
}

// on fills the template of an event, as AWS' documentation shows it, with r.
func (r request) on(host, file string) []byte {
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		panic(err)
	}
	var event map[string]any
	if err := json.Unmarshal(text, &event); err != nil {
		panic(err)
	}
	headers := map[string]string{"host": host, "content-type": "application/json", "x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
	maps.Copy(headers, r.headers)
	event["headers"], event["rawPath"], event["rawQueryString"] = headers, r.path, r.query
	event["body"], event["isBase64Encoded"] = r.body, r.encoded
	if len(r.cookies) > 0 {
		event["cookies"] = r.cookies
	}
	about := event["requestContext"].(map[string]any)
	about["domainName"] = host
	source := r.sourceIP
	if source == "" {
		source = "203.0.113.9"
	}
	maps.Copy(about["http"].(map[string]any), map[string]any{"method": r.method, "path": r.path, "sourceIp": source})
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	if err := encoder.Encode(event); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// url is r as a function URL sends it, api as an HTTP API does.
func (r request) url() []byte { return r.on(urlHost, "function_url.json") }
func (r request) api() []byte { return r.on(apiHost, "http_api.json") }

func (s *system) grant(key, user string) request {
	body, err := json.Marshal(map[string]string{"user_id": user, "stock_keeping_unit": "item1", "reason": "purchase", "purchase_id": "p_" + key})
	kit.Must(s.t, err)
	return request{
		method: http.MethodPost, path: "/v1/entitlements/grants", body: string(body),
		headers: map[string]string{"authorization": "Bearer " + s.writer, "idempotency-key": key},
	}
}

// tickEvent is the event that an EventBridge rule sends without an input of its own.
func tickEvent(t testing.TB, detail string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "scheduled.json"))
	kit.Must(t, err)
	return bytes.Replace(text, []byte(`"detail": {}`), []byte(`"detail": `+detail), 1)
}
