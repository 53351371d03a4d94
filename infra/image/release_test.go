//go:build release

package image_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// signature is what cosign calls a signature of an image.
const signature = "https://sigstore.dev/cosign/sign/v1"

// A release as the workflow makes it, but for the identity that signs: its signatures
// verify with the key that signed, and with no other, and its files are what they say.
func TestRelease(t *testing.T) {
	server, err := startRegistry()
	kit.Must(t, err)
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://")
	base, err := pushBase(repository)
	kit.Must(t, err)
	dir := t.TempDir()
	out := filepath.Join(dir, "release")
	run := func(environment []string, program string, arguments ...string) (string, error) {
		command := exec.CommandContext(t.Context(), program, arguments...)
		command.Env = append(append(os.Environ(), "COSIGN_PASSWORD="), environment...)
		var said strings.Builder
		command.Stderr = &said
		printed, err := command.Output()
		if err != nil {
			return said.String(), err
		}
		return strings.TrimSpace(string(printed)), nil
	}
	must := func(environment []string, program string, arguments ...string) string {
		t.Helper()
		said, err := run(environment, program, arguments...)
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, said)
		}
		return said
	}
	const cosign = ".local/bin/tools/cosign"
	for _, key := range []string{"ours", "other"} {
		must(nil, cosign, "generate-key-pair", "--output-key-prefix", filepath.Join(dir, key))
	}
	image := must([]string{
		"VERSION=" + version, "OUT=" + out, "COSIGN_KEY=" + filepath.Join(dir, "ours.key"), "PLATFORMS=" + platform().String(),
		"KO_DOCKER_REPO=" + repository + "/miniserver", "KO_DEFAULTBASEIMAGE=" + base,
	}, "make", "--silent", "release")

	verify := func(of, key, what string, more ...string) (string, error) {
		return run(nil, cosign, append(append([]string{what, "--key", filepath.Join(dir, key+".pub"), "--insecure-ignore-tlog"}, more...), of)...)
	}
	for _, c := range []struct {
		image, key, what string
		more             []string
		ok               bool
	}{
		{image, "ours", "verify", nil, true},
		{image, "ours", "verify-attestation", []string{"--type", "spdxjson"}, true},
		{image, "other", "verify", nil, false},
		{image, "other", "verify-attestation", []string{"--type", "spdxjson"}, false},
		{base, "ours", "verify", nil, false},
	} {
		said, err := verify(c.image, c.key, c.what, c.more...)
		if (err == nil) != c.ok {
			t.Errorf("cosign %s of %s with the key %s: %v, want it to succeed: %v\n%s", c.what, c.image, c.key, err, c.ok, said)
		}
		// Verifying finds the SBOM's attestation, too, which is no signature of the image.
		if c.ok && c.what == "verify" && !strings.Contains(said, signature) {
			t.Errorf("%s is not signed: %s", c.image, said)
		}
	}

	must(nil, "sh", "-c", "cd "+out+" && sha256sum --check --strict SHA256SUMS")
	_, digest, _ := strings.Cut(image, "@")
	overlay := must(nil, "tar", "-xzOf", filepath.Join(out, "miniserver-"+version+"-knative.tar.gz"),
		"miniserver-"+version+"-knative/infra/knative/overlays/production/kustomization.yaml")
	if !strings.Contains(overlay, "newName: "+repository+"/miniserver\n") || !strings.Contains(overlay, "digest: "+digest+"\n") {
		t.Errorf("the manifests do not name %s:\n%s", image, overlay)
	}
	entries, err := os.ReadDir(out)
	kit.Must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	for _, want := range []string{"SHA256SUMS", ".spdx.json", "-lambda-arm64.tar.gz", "-lambda-amd64.tar.gz", "-lambda.yaml", "-knative.tar.gz", "-licences.txt"} {
		if !strings.Contains(strings.Join(names, "\n"), want) {
			t.Errorf("the release has no %s: %v", want, names)
		}
	}
}
