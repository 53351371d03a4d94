package compose_test

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/infra/image/compose"
	"github.com/miniserversystem/miniserver/migrations"
)

const file = "../../../compose.yaml"

// urls are the addresses that comments of the file give to make run.
var urls = []string{"DATABASE_URL", "REDIS_URL", "NATS_URL", "RABBITMQ_URL", "OIDC_ISSUER"}

// ours are the services that are built here.
var ours = []string{"migrate", "miniserver"}

// problems are all that is wrong with a compose file.
func problems(t *testing.T, content string, environment ...string) []string {
	t.Helper()
	project, err := compose.Load(t.Context(), file, []byte(content), environment...)
	if err != nil {
		return []string{err.Error()}
	}
	found := append(compose.Check(project), compose.CheckComments(project, []byte(content), urls...)...)
	for _, name := range ours {
		service, there := project.Services[name]
		if !there || service.Build == nil {
			found = append(found, "there is no "+name+", built here")
			continue
		}
		found = append(found, compose.CheckURLs(project, service)...)
		if _, err := compose.Settings(service); err != nil {
			found = append(found, err.Error())
		}
	}
	return found
}

func read(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// compose accepts compose.yaml, and it is whole: with JetStream and with RabbitMQ.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	for _, environment := range [][]string{nil, {"TRANSFER_BROKER=rabbitmq", "GATEWAY_HOST=host-gateway"}, {collector}} {
		for _, problem := range problems(t, read(t), environment...) {
			t.Errorf("%q: %s", environment, problem)
		}
	}
}

// One command starts everything: nothing that the functions need is behind a profile,
// and they come after the migration, which comes after Postgres.
func TestOneCommandStartsEverything(t *testing.T) {
	t.Parallel()
	project, err := compose.Load(t.Context(), file, []byte(read(t)))
	if err != nil {
		t.Fatal(err)
	}
	functions := project.Services["miniserver"]
	for name, condition := range map[string]string{
		"migrate": "service_completed_successfully", "postgres": "service_healthy", "redis": "service_healthy",
		"nats": "service_healthy", "keycloak": "service_healthy", "rabbitmq": "service_healthy",
	} {
		got := functions.DependsOn[name]
		if got.Condition != condition || got.Required != (name != "rabbitmq") || len(project.Services[name].Profiles) > 0 != (name == "rabbitmq") {
			t.Errorf("miniserver depends on %s: %+v", name, got)
		}
	}
	if got := project.Services["migrate"].DependsOn["postgres"].Condition; got != "service_healthy" {
		t.Errorf("migrate depends on postgres: %q", got)
	}
	s, err := compose.Settings(functions)
	if err != nil {
		t.Fatal(err)
	}
	if s.Function != "" || s.Schedule != "auto" {
		t.Errorf("FUNCTION=%q SCHEDULE=%q: not all functions, or nothing ticks them", s.Function, s.Schedule)
	}
	migrate, err := compose.Settings(project.Services["migrate"])
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range migrations.Roles {
		login, err := url.Parse(s.Database(role.Name))
		owner, err2 := url.Parse(migrate.MigrationDatabaseURL)
		if err != nil || err2 != nil || login.Host != owner.Host || login.Path != owner.Path || migrate.Database(role.Name) != login.String() {
			t.Errorf("migrate brings another database up to date, or makes another login for %s", role.Name)
		} else if login.User.Username() == owner.User.Username() {
			t.Errorf("the functions log in as the owner of %s", role.Name)
		}
	}
	if grace := functions.StopGracePeriod; grace == nil || int64(*grace) <= int64(s.ShutdownGrace) {
		t.Errorf("it is killed after %v, before SHUTDOWN_GRACE (%s)", grace, s.ShutdownGrace)
	}
}

// collector is how the functions are told of the collector, as the file's comment says.
const collector = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318"

// Observability is behind its profile: without it nothing looks for a collector, and with
// it traces go there and Prometheus reads the metrics, once. What runs is what is tested.
func TestObservability(t *testing.T) {
	t.Parallel()
	content := read(t)
	if !strings.Contains(content, "#   "+collector+" docker compose --profile observability up\n") {
		t.Errorf("no comment says %s", collector)
	}
	traces := map[string]string{"": "", collector: "http://collector:4318/v1/traces"}
	for environment, want := range traces {
		project, err := compose.Load(t.Context(), file, []byte(content), environment)
		if err != nil {
			t.Fatal(err)
		}
		s, err := compose.Settings(project.Services["miniserver"])
		if err != nil {
			t.Fatal(err)
		}
		if s.TracesURL() != want || s.MetricsURL() != "" || s.MetricsAddress != "0.0.0.0:9464" {
			t.Errorf("%q: traces go to %q, metrics to %q and %q", environment, s.TracesURL(), s.MetricsURL(), s.MetricsAddress)
		}
		for _, name := range []string{"prometheus", "grafana", "collector", "jaeger"} {
			if !slices.Equal(project.Services[name].Profiles, []string{"observability"}) {
				t.Errorf("%s has the profiles %q", name, project.Services[name].Profiles)
			}
			if _, needed := project.Services["miniserver"].DependsOn[name]; needed {
				t.Errorf("the functions wait for %s", name)
			}
		}
	}
	for path, wants := range map[string][]string{
		"observability/prometheus.yaml":          {`["miniserver:9464"]`, `["collector:8888"]`},
		"observability/collector.yaml":           {"0.0.0.0:4318", "port: 8888", "http://jaeger:4318\n", "http://prometheus:9090/api/v1/otlp\n"},
		"observability/grafana-datasources.yaml": {"http://prometheus:9090\n", "http://jaeger:16686\n"},
	} {
		text, err := os.ReadFile("../../" + path)
		for _, want := range wants {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q: %v", path, want, err)
			}
		}
	}
	for _, c := range []struct{ tool, image, required string }{
		{"prometheus", `image: prom/prometheus:v3\.(\S+)`, `/prometheus/prometheus v0\.3(\S+)`}, // v3.13.5 is the module's v0.313.5
		{"collector", `image: otel/opentelemetry-collector:(\S+)`, `/collector/otelcol v(\S+)`},
	} {
		module, err := os.ReadFile("../../tools/" + c.tool + "/go.mod")
		image, required := regexp.MustCompile(c.image).FindStringSubmatch(content), regexp.MustCompile(c.required).FindStringSubmatch(string(module))
		if err != nil || image == nil || required == nil || image[1] != required[1] {
			t.Errorf("%s: the image %q is not the module %q, with which the files are tested: %v", c.tool, image, required, err)
		}
	}
}

// Each planted mistake is found, and its message names it.
func TestFaults(t *testing.T) {
	t.Parallel()
	good := read(t)
	for _, c := range []struct{ old, new, says string }{
		{"read_only: true", "readonly: true", "readonly"},
		{"- redis:/data", "- rediss:/data", "undefined volume rediss"},
		{"- redis:/data", "- redis:/elsewhere", "redis: no volume is at /data"},
		{"redis://functions:miniserver@redis", "redis://redis", "REDIS_URL: its user or password"},
		{"nats://functions:miniserver@nats", "nats://stranger:miniserver@nats", "NATS_URL: its user or password"},
		{"nats.conf:/etc", "users.acl:/etc", "NATS_URL: its user or password"},
		{"postgres:/var/lib/postgresql/data", "postgres:/var/lib/postgres", "postgres: no volume"},
		{"image: postgres:17.6", "image: postgres:17", `the image "postgres:17" is not pinned`},
		{"image: redis:7.4", "image: redis", `the image "redis" is not pinned`},
		{"image: nats:2.12-alpine", "image: nats:latest", "is not pinned"},
		{`"127.0.0.1:5432:5432"`, `"5432:5432"`, "postgres: port 5432"},
		{`"127.0.0.1:6379:6379"`, `"0.0.0.0:6379:6379"`, "redis: port 6379"},
		{`"127.0.0.1:4222:4222"`, `"127.0.0.1:4223:4222"`, "the comment's NATS_URL: nothing is at"},
		{"@nats:4222", "@nats:4223", "NATS_URL: nothing is at nats:4223"},
		{"POSTGRES_PASSWORD: miniserver", "POSTGRES_PASSWORD: other", "MIGRATION_DATABASE_URL: its user or password"},
		{"KC_HTTP_PORT: \"8082\"", "KC_HTTP_PORT: \"8080\"", "OIDC_ISSUER: nothing is at"},
		{"keycloak.localhost:172.30.82.11", "keycloak.localhost:172.30.82.12", "OIDC_ISSUER: nothing is at"},
		{"RABBITMQ_QUEUE: classic", "RABBITMQ_QUEUE: mirrored", "RABBITMQ_QUEUE must be"},
		{"DEBUG_ENDPOINTS:", "DEBUG_ENDPOINT:", "settings do not know DEBUG_ENDPOINT"},
		{"test: [CMD, /ko-app/miniserver, ready]", "test: [NONE]", "miniserver has no healthcheck"},
		{"postgres: {condition: service_healthy}", "postgres: {condition: service_started}", "miniserver waits for postgres to start"},
		{"rabbitmq: {condition: service_healthy, required: false}", "rabbitmq: {condition: service_healthy}", "miniserver needs rabbitmq"},
		{"realm.json:/opt", "realms.json:/opt", "realms.json: no such file"},
		{"realm.json:ro", "realm.json:rw", "keycloak may write"},
		{"pull_policy: build\n", "pull_policy: missing\n", "migrate: what is built here"},
		{"cap_drop: [ALL]", "cap_drop: [NET_RAW]", "miniserver: it is not read_only"},
		{"dockerfile: infra/image/Dockerfile", "dockerfile: Dockerfile", "its Dockerfile"},
		{"command: [migrate]\n", "command: [serve]\n", "migrate runs [] [serve]"},
		{"  redis:\n    image", "  cache:\n    image", "redis"},
		{"# REDIS_URL=", "# REDIS=", "no comment says what REDIS_URL is"},
		{"127.0.0.1:5672/\n", "127.0.0.1:5673/\n", "the comment's RABBITMQ_URL"},
		{"rules.yaml:/etc", "rule.yaml:/etc", "rule.yaml: no such file"},
		{"- prometheus:/prometheus", "- prometheus:/data", "prometheus: no volume"},
		{"grafana:13.2.3", "grafana:latest", "is not pinned"},
		{`"127.0.0.1:3000:3000"`, `"3000:3000"`, "grafana: port 3000"},
		{"METRICS_ADDRESS:", "METRICS_ADDRESSES:", "settings do not know METRICS_ADDRESSES"},
	} {
		if !strings.Contains(good, c.old) {
			t.Errorf("%q is not in the file", c.old)
			continue
		}
		found := problems(t, strings.Replace(good, c.old, c.new, 1))
		if !slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, c.says) }) {
			t.Errorf("%q: found %q, want one with %q", c.new, found, c.says)
		}
	}
}
