package image_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// spdxType is the media type of an SPDX document as JSON.
const spdxType = "text/spdx+json"

// Beside each image is its SBOM, which lists every module in the program, in the
// version that go.mod has.
func TestSBOM(t *testing.T) {
	t.Parallel()
	for command, modules := range map[string][]string{
		"serve":   {"github.com/jackc/pgx/v5", "github.com/nats-io/nats.go", "github.com/redis/go-redis/v9", "github.com/rabbitmq/amqp091-go"},
		"migrate": {"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3"},
	} {
		image(t, command)
		// Where cosign looks for it, and ko puts it.
		beside := digest(t, command)
		attached, err := remote.Image(beside.Context().Tag(strings.Replace(beside.DigestStr(), ":", "-", 1) + ".sbom"))
		must(t, err)
		layers, err := attached.Layers()
		must(t, err)
		if len(layers) != 1 {
			t.Fatalf("the SBOM of %s has %d layers", command, len(layers))
		}
		if kind, err := layers[0].MediaType(); err != nil || string(kind) != spdxType {
			t.Errorf("the SBOM of %s is %q: %v", command, kind, err)
		}
		content, err := layers[0].Uncompressed()
		must(t, err)
		var document struct {
			SPDXVersion string `json:"spdxVersion"`
			Packages    []struct {
				Name         string `json:"name"`
				Version      string `json:"versionInfo"`
				ExternalRefs []struct {
					Locator string `json:"referenceLocator"`
				} `json:"externalRefs"`
			} `json:"packages"`
		}
		must(t, json.NewDecoder(content).Decode(&document))
		_ = content.Close()
		listed := map[string]string{}
		for _, one := range document.Packages {
			listed[one.Name] = one.Version
		}
		if !strings.HasPrefix(document.SPDXVersion, "SPDX-2.") {
			t.Errorf("the SBOM of %s is of %q", command, document.SPDXVersion)
		}
		for _, module := range modules {
			want, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
			must(t, err)
			if got := listed[module]; got == "" || got != strings.TrimSpace(string(want)) {
				t.Errorf("the SBOM of %s has %s in version %q, go.mod has %s", command, module, got, want)
			}
		}
		t.Logf("%s: %d packages", command, len(document.Packages))
	}
}
