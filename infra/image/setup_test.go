// Package image_test builds the image as make images does, pushes it to a registry in
// this process, and runs what it pulls.
package image_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	// version is the version that the tests push.
	version = "9.8.7"
	// program is the one in the image.
	program = "/ko-app/miniserver"
)

func TestMain(m *testing.M) {
	// The repository's root: ko builds there, and kit finds its servers by it.
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	code := kit.Main(m)
	if pushed.server != nil {
		pushed.server.Close()
	}
	os.Exit(code)
}

// pushed is the registry with the image in it, made once for all tests.
var pushed struct {
	once   sync.Once
	server *httptest.Server
	ref    name.Digest
	err    error
}

// image pulls the image.
func image(t testing.TB) v1.Image {
	t.Helper()
	pushed.once.Do(func() {
		if pushed.server, pushed.err = startRegistry(); pushed.err == nil {
			pushed.ref, pushed.err = push(pushed.server)
		}
	})
	kit.Must(t, pushed.err)
	img, err := remote.Image(pushed.ref)
	kit.Must(t, err)
	return img
}

// push runs push.sh for this machine's kind of processor, on a base of ours, and
// returns the name that it prints.
func push(to *httptest.Server) (name.Digest, error) {
	repository := strings.TrimPrefix(to.URL, "http://")
	base, err := pushBase(repository)
	if err != nil {
		return name.Digest{}, err
	}
	command := exec.Command("infra/image/push.sh")
	command.Env = append(os.Environ(),
		"KO_DOCKER_REPO="+repository+"/miniserver", "KO_DEFAULTBASEIMAGE="+base,
		"PLATFORMS="+platform().String(), "VERSION="+version)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return name.Digest{}, fmt.Errorf("push.sh: %w\n%s", err, &said)
	}
	ref := strings.TrimSpace(string(out))
	if tagged, _, _ := strings.Cut(ref, "@"); tagged != repository+"/miniserver:"+version {
		return name.Digest{}, fmt.Errorf("push.sh printed %q", out)
	}
	return name.NewDigest(ref)
}

func startRegistry() (*httptest.Server, error) {
	listener, err := proc.Listen(0)
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(quiet)))
	_ = server.Listener.Close() // on a port that the system chose
	server.Listener = listener
	server.Start()
	return server, nil
}

func get(t testing.TB, address string) int {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		return 0 // nobody listens yet
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func send(t testing.TB, request *http.Request) (string, int) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	kit.Must(t, err)
	text, err := io.ReadAll(response.Body)
	kit.Must(t, errors.Join(err, response.Body.Close()))
	return string(text), response.StatusCode
}
