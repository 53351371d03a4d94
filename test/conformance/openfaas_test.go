//go:build conformance

package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/conformance"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// OpenFaaS runs our image without of-watchdog: the program itself does what that would in
// HTTP mode. So this is the program with the environment of stack.yaml and secrets in
// files, at OpenFaaS' paths.
func TestOpenFaaS(t *testing.T) {
	t.Parallel()
	stack := readStack(t)
	paths := conformance.Paths{Liveness: fn.OpenFaaSLivenessPath, Readiness: fn.OpenFaaSReadinessPath, Tick: "/"}
	a := conformance.Processes("OpenFaaS", program.Build(t, root(t), "./infra/miniserver"), paths, stack.environment)
	conformance.Run(t, a)
}

// stack holds what we read of infra/openfaas/stack.yaml.
type stack struct {
	Functions map[string]struct {
		Environment map[string]string `yaml:"environment"`
		Secrets     []string          `yaml:"secrets"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"functions"`
}

func readStack(t *testing.T) stack {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "infra/openfaas/stack.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var s stack
	if err := yaml.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// ofSuite are the settings that the suite sets: addresses, and that only ticks carry
// events.
var ofSuite = []string{"PORT", "FUNCTION_URL", "GATEWAY_URL", "OIDC_ISSUER", "DEBUG_ENDPOINTS", "SHUTDOWN_GRACE", "WAKES"}

const secretsFolder = "/var/openfaas/secrets/"

var chosen = regexp.MustCompile(`^\$\{\w+:-(.*)\}$`)

// environment returns what the provider would give a function's container: only the
// variables of stack.yaml, and secrets as files.
func (s stack) environment(t testing.TB, function string, suite map[string]string) map[string]string {
	t.Helper()
	described, ok := s.Functions[function]
	if !ok {
		t.Fatalf("stack.yaml has no %s", function)
	}
	dir := t.TempDir()
	for _, secret := range described.Secrets {
		name := strings.ToUpper(strings.ReplaceAll(secret, "-", "_"))
		for _, store := range []string{"DATABASE_URL", "REDIS_URL", "NATS_URL"} {
			// Each function or domain has its own secret, which the suite does not
			// distinguish.
			if strings.HasSuffix(name, "_"+store) {
				name = store
			}
		}
		value, ok := suite[name]
		if !ok {
			t.Fatalf("%s has the secret %s, which is not a setting of the suite", function, secret)
		}
		if err := os.WriteFile(filepath.Join(dir, secret), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environment := map[string]string{}
	for name, value := range described.Environment {
		if unset := chosen.FindStringSubmatch(value); unset != nil {
			value = unset[1]
		}
		if secret, ok := strings.CutPrefix(value, secretsFolder); ok {
			value = filepath.Join(dir, secret)
		}
		environment[name] = value
	}
	for _, name := range ofSuite {
		environment[name] = suite[name]
	}
	if environment["TICK_LINGER"] != "" {
		environment["TICK_LINGER"] = "300ms" // instead of 55 s, until the next minute
	}
	if described.Annotations["com.openfaas.health.http.path"] != fn.OpenFaaSLivenessPath || described.Annotations["com.openfaas.ready.http.path"] != fn.OpenFaaSReadinessPath {
		t.Errorf("%s is probed at %v", function, described.Annotations)
	}
	return environment
}
