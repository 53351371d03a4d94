package image_test

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	// nobody is the user of the image, distroless' nonroot.
	nobody = "65532:65532"
	// maxCompressed is the most bytes that it may have in a registry. It has about half
	// of that.
	maxCompressed = 24 << 20
)

// The image runs as nobody, starts its program without a shell, and says what it is.
func TestConfig(t *testing.T) {
	t.Parallel()
	revision, err := exec.Command("git", "rev-parse", "HEAD").Output()
	kit.Must(t, err)
	config, err := image(t).ConfigFile()
	kit.Must(t, err)
	if config.Config.User != nobody {
		t.Errorf("it runs as %q", config.Config.User)
	}
	if want := []string{program}; !slices.Equal(config.Config.Entrypoint, want) || len(config.Config.Cmd) > 0 {
		t.Errorf("it starts %q %q, want %q", config.Config.Entrypoint, config.Config.Cmd, want)
	}
	if config.Architecture != platform().Architecture || config.OS != platform().OS {
		t.Errorf("it is for %s/%s", config.OS, config.Architecture)
	}
	want := map[string]string{
		"org.opencontainers.image.title":    "miniserver",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.revision": strings.TrimSpace(string(revision)),
		"org.opencontainers.image.source":   "https://github.com/miniserversystem/miniserver",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if !maps.Equal(config.Config.Labels, want) {
		t.Errorf("it has the labels %q", config.Config.Labels)
	}
	for _, pair := range config.Config.Env {
		if name, _, _ := strings.Cut(pair, "="); !slices.Contains([]string{"PATH", "KO_DATA_PATH", "SSL_CERT_FILE"}, name) {
			t.Errorf("it sets %s", pair)
		}
	}
}

// There is one program in the image, which needs nothing else: no shell, no loader.
func TestOneStaticProgram(t *testing.T) {
	t.Parallel()
	var programs []string
	for header, content := range files(t, image(t)) {
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
			t.Errorf("it has %s, which is no file", header.Name)
		}
		if header.Mode&0o6022 != 0 && header.Typeflag == tar.TypeReg {
			t.Errorf("others may write %s, or it is setuid: %o", header.Name, header.Mode)
		}
		if header.Typeflag != tar.TypeReg || header.Mode&0o111 == 0 {
			continue
		}
		programs = append(programs, header.Name)
		binary, err := elf.NewFile(bytes.NewReader(content))
		kit.Must(t, err)
		for _, part := range binary.Progs {
			if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static", header.Name)
			}
		}
		if binary.Section(".symtab") != nil {
			t.Errorf("%s has its symbols: -s is missing", header.Name)
		}
		t.Logf("program %.1f MB", mb(header.Size))
	}
	if !slices.Equal(programs, []string{program}) {
		t.Errorf("it has the programs %q", programs)
	}
}

// The same commit gives the same image: the time and place of the build are not in it.
func TestSameDigestAgain(t *testing.T) {
	t.Parallel()
	image(t)
	again, err := push(pushed.server)
	kit.Must(t, err)
	if again != pushed.ref {
		t.Errorf("built %q, and then %q", pushed.ref, again)
	}
}

// The image is small enough to be fetched within a cold start.
func TestSize(t *testing.T) {
	t.Parallel()
	layers, err := image(t).Layers()
	kit.Must(t, err)
	var compressed, unpacked int64
	for _, layer := range layers {
		size, err := layer.Size()
		kit.Must(t, err)
		compressed += size
		content, err := layer.Uncompressed()
		kit.Must(t, err)
		n, err := io.Copy(io.Discard, content)
		kit.Must(t, errors.Join(err, content.Close()))
		unpacked += n
	}
	t.Logf("%d layers, %.1f MB compressed, %.1f MB unpacked", len(layers), mb(compressed), mb(unpacked))
	if compressed > maxCompressed {
		t.Errorf("it has %d bytes compressed, more than %d", compressed, maxCompressed)
	}
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// files are what a container of the image sees.
func files(t testing.TB, img v1.Image) map[*tar.Header][]byte {
	t.Helper()
	flat := mutate.Extract(img)
	defer flat.Close()
	archive, found := tar.NewReader(flat), map[*tar.Header][]byte{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		kit.Must(t, err)
		content, err := io.ReadAll(archive)
		kit.Must(t, err)
		found[header] = content
	}
}
