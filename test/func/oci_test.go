//go:build func

package funccli

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// image is an OCI image, unpacked.
type image struct {
	rootfs string
	config imageConfig
	files  []string // relative to the root, without directories
	// bytes of the layers and of the files
	compressed, unpacked int64
}

// imageConfig is what a container runtime reads of an image.
type imageConfig struct {
	User       string
	Env, Cmd   []string
	WorkingDir string
	StopSignal string
}

type descriptor struct {
	Digest string
	Size   int64
}

// unpack unpacks an OCI image layout with one image.
func unpack(t testing.TB, layout string) *image {
	t.Helper()
	i := &image{rootfs: filepath.Join(t.TempDir(), "rootfs")}
	kit.Must(t, os.Mkdir(i.rootfs, 0o755))
	blob := func(d descriptor) string {
		return filepath.Join(layout, "blobs", filepath.FromSlash(strings.Replace(d.Digest, ":", "/", 1)))
	}
	var index struct{ Manifests []descriptor }
	read(t, filepath.Join(layout, "index.json"), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("the layout has %d images, want 1", len(index.Manifests))
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(t, blob(index.Manifests[0]), &manifest)
	var config struct{ Config imageConfig }
	read(t, blob(manifest.Config), &config)
	i.config = config.Config
	for _, layer := range manifest.Layers {
		i.compressed += layer.Size
		i.layer(t, blob(layer))
	}
	return i
}

func read(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	kit.Must(t, err)
	kit.Must(t, json.Unmarshal(text, into))
}

func (i *image) layer(t testing.TB, path string) {
	t.Helper()
	file, err := os.Open(path)
	kit.Must(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	kit.Must(t, err)
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		kit.Must(t, err)
		name := strings.TrimPrefix(filepath.Clean(header.Name), "/")
		if !filepath.IsLocal(name) {
			t.Fatalf("the layer has the non-local path %q", header.Name)
		}
		target := filepath.Join(i.rootfs, name)
		switch header.Typeflag {
		case tar.TypeDir:
			kit.Must(t, os.MkdirAll(target, header.FileInfo().Mode().Perm()))
		case tar.TypeReg:
			kit.Must(t, os.MkdirAll(filepath.Dir(target), 0o755))
			out, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, header.FileInfo().Mode().Perm())
			kit.Must(t, err)
			n, err := io.Copy(out, archive)
			kit.Must(t, errors.Join(err, out.Close()))
			i.unpacked += n
			i.files = append(i.files, name)
		default:
			t.Fatalf("%s is of type %q", name, header.Typeflag)
		}
	}
}
