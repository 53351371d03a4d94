package image_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/miniserversystem/miniserver/test/kit"
)

// spdxType is the media type of an SPDX document as JSON.
const spdxType = "text/spdx+json"

// The image's SBOM lists every module in the program, in the version of go.mod.
func TestSBOM(t *testing.T) {
	t.Parallel()
	image(t)
	// Where cosign looks for it, and ko puts it.
	attached, err := remote.Image(pushed.ref.Context().Tag(strings.Replace(pushed.ref.DigestStr(), ":", "-", 1) + ".sbom"))
	kit.Must(t, err)
	layers, err := attached.Layers()
	kit.Must(t, err)
	if len(layers) != 1 {
		t.Fatalf("the SBOM has %d layers", len(layers))
	}
	if kind, err := layers[0].MediaType(); err != nil || string(kind) != spdxType {
		t.Errorf("the SBOM is %q: %v", kind, err)
	}
	content, err := layers[0].Uncompressed()
	kit.Must(t, err)
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
	kit.Must(t, json.NewDecoder(content).Decode(&document))
	_ = content.Close()
	listed := map[string]string{}
	for _, one := range document.Packages {
		listed[one.Name] = one.Version
	}
	if !strings.HasPrefix(document.SPDXVersion, "SPDX-2.") {
		t.Errorf("the SBOM is of %q", document.SPDXVersion)
	}
	for _, module := range []string{
		"github.com/jackc/pgx/v5", "github.com/nats-io/nats.go", "github.com/redis/go-redis/v9", "github.com/rabbitmq/amqp091-go", "github.com/pressly/goose/v3",
	} {
		want, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
		kit.Must(t, err)
		if got := listed[module]; got == "" || got != strings.TrimSpace(string(want)) {
			t.Errorf("the SBOM has %s in version %q, go.mod has %s", module, got, want)
		}
	}
	t.Logf("%d packages", len(document.Packages))
}
