package image_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/test/kit"
)

// runc is the program that Docker, containerd and Kubernetes start containers with:
// Debian's package, unpacked and not installed.
type runc struct{ program, libraries, state string }

var unpackRunc = sync.OnceValues(func() (runc, error) {
	tree, libraries, err := apt.Unpacked(context.Background(), filepath.Join(".local", "deps"), "runc", os.Stderr, "runc")
	if err != nil {
		return runc{}, err
	}
	return runc{program: filepath.Join(tree, "usr", "sbin", "runc"), libraries: libraries}, nil
})

func theRunc(t testing.TB) runc {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("runc gives a container another user, which needs root")
	}
	r, err := unpackRunc()
	kit.Must(t, err)
	r.state = filepath.Join(t.TempDir(), "runc")
	return r
}

func (r runc) command(args ...string) *exec.Cmd {
	command := exec.Command(r.program, append([]string{"--root", r.state}, args...)...)
	command.Env = []string{"LD_LIBRARY_PATH=" + r.libraries, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return command
}

// container is one that was started.
type container struct {
	runc
	t       testing.TB
	id      string
	command *exec.Cmd
	log     string
	ended   chan error
}

// run starts a container of a bundle. It is gone when the test ends.
func (r runc) run(t testing.TB, bundle string) *container {
	t.Helper()
	c := &container{runc: r, t: t, id: "miniserver-" + uuid.NewString(), log: filepath.Join(bundle, "log"), ended: make(chan error, 1)}
	out, err := os.Create(c.log)
	kit.Must(t, err)
	defer out.Close()
	c.command = r.command("run", "--bundle", bundle, c.id)
	c.command.Stdout, c.command.Stderr = out, out
	kit.Must(t, c.command.Start())
	go func() { c.ended <- c.command.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		_ = r.command("delete", "--force", c.id).Run() // fails when it has ended
		<-c.ended
		if t.Failed() {
			t.Logf("log of the container:\n%s", c.logged())
		}
	})
	return c
}

func (c *container) logged() string {
	text, _ := os.ReadFile(c.log)
	return string(text)
}

// exec runs a program in the container, as its user, as health checks do.
func (c *container) exec(args ...string) (string, error) {
	out, err := c.runc.command(append([]string{"exec", c.id}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// pid is the process' number outside of the container.
func (c *container) pid() int {
	c.t.Helper()
	var state struct {
		Pid int `json:"pid"`
	}
	out, err := c.runc.command("state", c.id).Output()
	kit.Must(c.t, err)
	kit.Must(c.t, json.NewDecoder(bytes.NewReader(out)).Decode(&state))
	return state.Pid
}
