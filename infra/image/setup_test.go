// Package image_test builds the images as make images does, pushes them to a registry
// in this process, and runs what it pulls.
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
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/miniserversystem/miniserver/infra/dev"
	"github.com/miniserversystem/miniserver/test/kit"
)

// version is what the tests call the version that they push.
const version = "9.8.7"

func TestMain(m *testing.M) {
	// The repository's root: ko builds there, and testkit finds its servers by it.
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	code := kit.Main(m)
	if pushed.server != nil {
		pushed.server.Close()
	}
	os.Exit(code)
}

// pushed is the registry with the images in it, made once for all tests.
var pushed struct {
	once   sync.Once
	server *httptest.Server
	refs   map[string]string // name of a command → reference with digest
	err    error
}

// image pulls the image of infra/<command>.
func image(t testing.TB, command string) v1.Image {
	t.Helper()
	pushed.once.Do(func() {
		if pushed.server, pushed.err = startRegistry(); pushed.err == nil {
			pushed.refs, pushed.err = push(pushed.server)
		}
	})
	must(t, pushed.err)
	img, err := remote.Image(digest(t, command))
	must(t, err)
	return img
}

// digest is the pushed image's name, with its digest.
func digest(t testing.TB, command string) name.Digest {
	t.Helper()
	ref, err := name.NewDigest(pushed.refs[command])
	must(t, err)
	return ref
}

// push runs push.sh for this machine's kind of processor, on a base of ours.
func push(to *httptest.Server) (map[string]string, error) {
	repository := strings.TrimPrefix(to.URL, "http://")
	base, err := pushBase(repository)
	if err != nil {
		return nil, err
	}
	command := exec.Command("infra/image/push.sh")
	command.Env = append(os.Environ(),
		"KO_DOCKER_REPO="+repository+"/miniserver", "KO_DEFAULTBASEIMAGE="+base,
		"PLATFORMS="+platform().String(), "VERSION="+version)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("push.sh: %w\n%s", err, &said)
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		ref := strings.TrimSpace(line)
		tagged, _, _ := strings.Cut(ref, "@")
		tag, err := name.NewTag(tagged)
		if err != nil || tag.TagStr() != version {
			return nil, fmt.Errorf("push.sh printed %q: %w", ref, err)
		}
		refs[path.Base(tag.RepositoryStr())] = ref
	}
	if len(refs) != 2 {
		return nil, fmt.Errorf("push.sh printed %q", out)
	}
	return refs, nil
}

func startRegistry() (*httptest.Server, error) {
	listener, err := dev.Listen(0)
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
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	return string(text), response.StatusCode
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
