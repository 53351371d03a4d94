package check_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/manifests"
)

func stack(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("../../infra/openfaas/stack.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// faas-cli can read the stack, and it matches the registry.
func TestOpenFaaS(t *testing.T) {
	t.Parallel()
	for _, err := range check.CheckStack(stack(t), t.TempDir()) {
		t.Error(err)
	}
}

func TestOpenFaaSFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, message string }{
		{"misspelled field", "readonly_root_filesystem", "readonly_rootfs", `unknown field "functions.`},
		{"unknown function", "  grant:\n", "  grants:\n", "function grant is not in stack.yaml"},
		{"another function", "FUNCTION: grant\n", "FUNCTION: revoke\n", "grant: FUNCTION is revoke"},
		{"cron with seconds", `schedule: "* * * * *"`, `schedule: "* * * * * *"`, "are no ticks"},
		{"cron by the hour", `schedule: "* * * * *"`, `schedule: "0 * * * *"`, "it is ticked every 1h0m0s"},
		{"no linger", "      TICK_LINGER: 55s\n", "", "lingers 0s"},
		{"linger over the budget", "TICK_BUDGET: 55s", "TICK_BUDGET: 20s", "TICK_LINGER must be"},
		{"no such setting", "WAKES:", "WAKE:", "there is no setting WAKE"},
		{"secret that is not listed", "      - gateway-redis-url\n", "", "it reads [gateway-redis-url identity-signing-key oidc-client-secret]"},
		{"secret elsewhere", "/var/openfaas/secrets/gateway-redis-url", "/run/secrets/redis-url", "is not under /var/openfaas"},
		{"scale from zero", `scale.zero: "false"`, `scale.zero: "true"`, "zero true"},
		{"scale upside down", `scale.min: "1"`, `scale.min: "50"`, "it scales from 50 to 10"},
		{"another probe", "/_/health", "/healthz", "its probes ask other paths"},
		{"latest", "miniserver:1.0.0", "miniserver:latest", "not those of a finished image"},
		{"no issuer", "OIDC_ISSUER: ", "OIDC_AUDIENCE: ", "gateway needs OIDC_ISSUER"},
		{"a quantity", "memory: 64Mi", "memory: 64MiB", `the quantity "64MiB"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := stack(t)
			if !bytes.Contains(text, []byte(c.from)) {
				t.Fatalf("the stack has no %q", c.from)
			}
			found := check.CheckStack(bytes.Replace(text, []byte(c.from), []byte(c.to), 1), t.TempDir())
			if !slices.ContainsFunc(found, func(err error) bool { return strings.Contains(err.Error(), c.message) }) {
				t.Errorf("no check reports %q, only %v", c.message, found)
			}
		})
	}
}
