package check_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/test/manifests"
)

// made are the kustomizations, each built once.
var made = map[string]func() ([]byte, error){}

func init() {
	for _, folder := range []string{"base", "overlays/kind", "overlays/production"} {
		made[folder] = sync.OnceValues(func() ([]byte, error) { return check.Make(filepath.Join("../../infra/knative", folder)) })
	}
}

// build returns one of the kustomizations of infra/knative.
func build(t testing.TB, folder string) *check.Build {
	t.Helper()
	text, err := made[folder]()
	if err != nil {
		t.Fatal(err)
	}
	b, err := check.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	if b.Stores = strings.HasSuffix(folder, "kind"); !b.Stores {
		b.Expected = promised(t)
	}
	return b
}

var row = regexp.MustCompile("^\\| (`.*?) \\| (`.*?) \\|")

// promised returns the Secrets that production's README asks operators to create.
func promised(t testing.TB) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../infra/knative/overlays/production/README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z.-]+)`")
	secrets := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := row.FindStringSubmatch(line)
		if cells == nil {
			continue
		}
		var keys []string
		for _, key := range names.FindAllStringSubmatch(cells[2], -1) {
			keys = append(keys, key[1])
		}
		for _, name := range names.FindAllStringSubmatch(cells[1], -1) {
			secrets[name[1]] = keys
		}
	}
	return secrets
}

// A cluster would accept the base and both overlays, and they match the registry.
func TestManifests(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"base", "overlays/kind", "overlays/production"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			b := build(t, folder)
			if folder == "base" {
				// The addresses that each overlay sets.
				given(t, b, map[string]any{"OIDC_ISSUER": "https://id.example.com", "GATEWAY_URL": "https://game.example.com"})
			}
			for _, err := range check.Check(b) {
				t.Error(err)
			}
		})
	}
}

// given adds settings to a build.
func given(t testing.TB, b *check.Build, values map[string]any) {
	t.Helper()
	for _, d := range b.Documents {
		if strings.HasPrefix(d.Name(), "settings-") {
			for name, value := range values {
				d.Raw["data"].(map[string]any)[name] = value
			}
			return
		}
	}
	t.Fatal("the build has no settings")
}
