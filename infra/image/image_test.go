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
)

const (
	// nobody is the user of the images, distroless' nonroot.
	nobody = "65532:65532"
	// maxCompressed is what an image may weigh in a registry, in bytes. It has about
	// half of that.
	maxCompressed = 24 << 20
)

var commands = []string{"serve", "migrate"}

// The images run as nobody, start their command without a shell, and say what they are.
func TestConfig(t *testing.T) {
	t.Parallel()
	revision, err := exec.Command("git", "rev-parse", "HEAD").Output()
	must(t, err)
	for _, command := range commands {
		config, err := image(t, command).ConfigFile()
		must(t, err)
		if config.Config.User != nobody {
			t.Errorf("%s runs as %q", command, config.Config.User)
		}
		if want := []string{"/ko-app/" + command}; !slices.Equal(config.Config.Entrypoint, want) || len(config.Config.Cmd) > 0 {
			t.Errorf("%s starts %q %q, want %q", command, config.Config.Entrypoint, config.Config.Cmd, want)
		}
		if config.Architecture != platform().Architecture || config.OS != platform().OS {
			t.Errorf("%s is for %s/%s", command, config.OS, config.Architecture)
		}
		want := map[string]string{
			"org.opencontainers.image.title":    "miniserver",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.revision": strings.TrimSpace(string(revision)),
			"org.opencontainers.image.source":   "https://github.com/miniserversystem/miniserver",
			"org.opencontainers.image.licenses": "Apache-2.0",
		}
		if !maps.Equal(config.Config.Labels, want) {
			t.Errorf("%s has the labels %q", command, config.Config.Labels)
		}
		for _, pair := range config.Config.Env {
			if name, _, _ := strings.Cut(pair, "="); !slices.Contains([]string{"PATH", "KO_DATA_PATH", "SSL_CERT_FILE"}, name) {
				t.Errorf("%s sets %s", command, pair)
			}
		}
	}
}

// There is one program in an image, which needs nothing else: no shell, no loader.
func TestOneStaticProgram(t *testing.T) {
	t.Parallel()
	for _, command := range commands {
		var programs []string
		for header, content := range files(t, image(t, command)) {
			if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
				t.Errorf("%s has %s, which is no file", command, header.Name)
			}
			if header.Mode&0o6022 != 0 && header.Typeflag == tar.TypeReg {
				t.Errorf("%s: others may write %s, or it is setuid: %o", command, header.Name, header.Mode)
			}
			if header.Typeflag != tar.TypeReg || header.Mode&0o111 == 0 {
				continue
			}
			programs = append(programs, header.Name)
			program, err := elf.NewFile(bytes.NewReader(content))
			must(t, err)
			for _, part := range program.Progs {
				if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
					t.Errorf("%s is not static", header.Name)
				}
			}
			if program.Section(".symtab") != nil {
				t.Errorf("%s has its symbols: -s is missing", header.Name)
			}
			t.Logf("%s: program %.1f MB", command, mb(header.Size))
		}
		if !slices.Equal(programs, []string{"/ko-app/" + command}) {
			t.Errorf("%s has the programs %q", command, programs)
		}
	}
}

// The same commit gives the same image: nothing of when and where is in it.
func TestSameDigestAgain(t *testing.T) {
	t.Parallel()
	for _, command := range commands {
		image(t, command)
	}
	again, err := push(pushed.server)
	must(t, err)
	if !maps.Equal(again, pushed.refs) {
		t.Errorf("%q, and then %q", pushed.refs, again)
	}
}

// An image is small enough to be fetched within a cold start.
func TestSize(t *testing.T) {
	t.Parallel()
	for _, command := range commands {
		layers, err := image(t, command).Layers()
		must(t, err)
		var compressed, unpacked int64
		for _, layer := range layers {
			size, err := layer.Size()
			must(t, err)
			compressed += size
			content, err := layer.Uncompressed()
			must(t, err)
			n, err := io.Copy(io.Discard, content)
			must(t, errors.Join(err, content.Close()))
			unpacked += n
		}
		t.Logf("%s: %d layers, %.1f MB compressed, %.1f MB unpacked", command, len(layers), mb(compressed), mb(unpacked))
		if compressed > maxCompressed {
			t.Errorf("%s has %d bytes compressed, more than %d", command, compressed, maxCompressed)
		}
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
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		found[header] = content
	}
}
