//go:build schemathesis

package api_test

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

const schemathesis = "schemathesis==4.32.5"

// refusals are answers to what the document forbids; of its own, Schemathesis does not know
// that a body may be too large.
const refusals = `checks.negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429"]
`

// Schemathesis makes requests from the document, good and bad ones, of at most
// SCHEMATHESIS_EXAMPLES (100) for each operation and role, from SCHEMATHESIS_SEED (1). None
// is answered 5xx, or otherwise than the document says; what the document forbids is refused,
// and so is everything without a token. A role that is always refused shows nothing, so
// at least so many routes and methods must succeed for each.
func TestSchemathesis(t *testing.T) {
	program := installed(t)
	for role, least := range map[string]int{auth.RolePlayer: 10, auth.RoleEntitlementWriter: 14, auth.RoleOperator: 25} {
		t.Run(role, func(t *testing.T) {
			s, people := system.StartWithPeople(t, "LOG_LEVEL=error", "METRICS_ADDRESS=127.0.0.1:0", "STREAM_LIFETIME=1s", "STREAMS_PER_USER=1000",
				"LIMIT_PLAYER_RATE=1000000", "LIMIT_PLAYER_BURST=1000000", "LIMIT_SERVICE_RATE=1000000", "LIMIT_SERVICE_BURST=1000000",
				"LIMIT_ANONYMOUS_RATE=1000000", "LIMIT_ANONYMOUS_BURST=1000000")
			token := people.Token(t, map[string]any{"sub": role, "realm_access": map[string]any{"roles": []string{role}}})
			command := exec.CommandContext(t.Context(), "python3", filepath.Join(program, "bin", "schemathesis"), "--no-color", "run", s.URL+"/openapi.json",
				"--header", "Authorization: Bearer "+token, "--workers", "2", "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all",
				"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"+
					"negative_data_rejection,unsupported_method,ignored_auth",
				"--seed", cmp.Or(os.Getenv("SCHEMATHESIS_SEED"), "1"), "--max-examples", cmp.Or(os.Getenv("SCHEMATHESIS_EXAMPLES"), "100"),
				"--request-timeout", "15", "--warnings", "off", "--continue-on-failure", "--no-shrink")
			command.Env = append(os.Environ(), "PYTHONPATH="+program)
			command.Dir = t.TempDir()
			kit.Must(t, os.WriteFile(filepath.Join(command.Dir, "schemathesis.toml"), []byte(refusals), 0o600))
			var printed bytes.Buffer
			command.Stdout = io.MultiWriter(&printed, os.Stderr)
			command.Stderr = command.Stdout
			if err := command.Run(); err != nil {
				t.Error(err)
			}
			made := regexp.MustCompile(`(\d+) generated`).FindSubmatch(printed.Bytes())
			if made == nil {
				t.Fatal("schemathesis does not say how many requests it made")
			}
			if n, err := strconv.Atoi(string(made[1])); err != nil || n < 1000 {
				t.Errorf("it made %d requests, which shows little: %v", n, err)
			}
			succeeded, all := routes(s)
			t.Logf("%d of %d routes and methods succeeded at least once: %s", len(succeeded), all, strings.Join(succeeded, ", "))
			if len(succeeded) < least {
				t.Errorf("%d routes and methods succeeded, want %d", len(succeeded), least)
			}
		})
	}
}

// routes returns the gateway's methods and routes that answered 2xx, and how many answered.
func routes(s *system.System) (succeeded []string, all int) {
	answered := map[string]bool{} // whether with 2xx
	for _, found := range regexp.MustCompile(`duration_seconds_count\{faas_name="gateway",http_request_method="(\w+)",http_response_status_code="(\d)\d\d",http_route="(/v1/[^"]+)"`).FindAllStringSubmatch(s.Metrics(), -1) {
		name := found[1] + " " + found[3]
		if answered[name] = answered[name] || found[2] == "2"; answered[name] {
			succeeded = append(succeeded, name)
		}
	}
	slices.Sort(succeeded)
	return slices.Compact(succeeded), len(answered)
}

// installed returns the folder in which Schemathesis is installed.
func installed(t *testing.T) string {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	dir := filepath.Join(root, ".local", "deps", schemathesis)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	made, err := os.MkdirTemp(t.TempDir(), "")
	kit.Must(t, err)
	if said, err := proc.Command(t.Context(), "python3", "-m", "pip", "install", "--quiet", "--target", made, schemathesis).CombinedOutput(); err != nil {
		t.Fatalf("pip install %s: %v\n%s\nIt needs python3 and python3-pip", schemathesis, err, said)
	}
	kit.Must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	kit.Must(t, proc.Command(t.Context(), "cp", "-r", made, dir).Run())
	return dir
}
