//go:build func

package funccli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/test/kit"
)

// container is a process under runc, on the host's network, where the test's stores are.
type container struct {
	t       testing.TB
	began   time.Time
	id, log string
	command func(arguments ...string) *exec.Cmd
	ended   chan error
}

// start runs the image's command as its user, without capabilities, on a read-only root
// file system. runc is Debian's, unpacked under .local/deps.
func (i *image) start(t testing.TB, environment ...string) *container {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("runc needs root to start a container; run make test-func as root")
	}
	root, err := kit.Root()
	kit.Must(t, err)
	programs, libraries, err := apt.Unpacked(t.Context(), filepath.Join(root, ".local", "deps"), "runc", os.Stderr, "runc")
	kit.Must(t, err)
	bundle, state := filepath.Dir(i.rootfs), t.TempDir()
	c := &container{t: t, id: "miniserver-" + strconv.Itoa(os.Getpid()), log: filepath.Join(bundle, "log"), ended: make(chan error, 1)}
	c.command = func(arguments ...string) *exec.Cmd {
		command := exec.Command(filepath.Join(programs, "usr", "sbin", "runc"), append([]string{"--root", state}, arguments...)...)
		command.Dir, command.Env = bundle, []string{"LD_LIBRARY_PATH=" + libraries, "PATH=" + os.Getenv("PATH")}
		return command
	}
	if out, err := c.command("spec").CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v: %s", err, out)
	}
	i.configure(t, filepath.Join(bundle, "config.json"), environment)
	out, err := os.Create(c.log)
	kit.Must(t, err)
	defer out.Close()
	running := c.command("run", c.id)
	running.Stdout, running.Stderr = out, out
	c.began = time.Now()
	kit.Must(t, running.Start())
	go func() { c.ended <- running.Wait() }()
	t.Cleanup(func() {
		_ = c.command("delete", "--force", c.id).Run() // fails if it has ended
		if t.Failed() {
			t.Logf("log of the container:\n%s", c.logged())
		}
	})
	return c
}

// configure makes the example that runc spec wrote this container's configuration.
func (i *image) configure(t testing.TB, path string, environment []string) {
	t.Helper()
	var spec map[string]any
	read(t, path, &spec)
	user, err := strconv.Atoi(i.config.User)
	kit.Must(t, err)
	process := spec["process"].(map[string]any)
	process["terminal"], process["noNewPrivileges"] = false, true
	process["user"] = map[string]int{"uid": user, "gid": user}
	process["args"], process["cwd"] = i.config.Cmd, i.config.WorkingDir
	process["env"] = append(i.config.Env, environment...)
	process["capabilities"] = map[string]any{}
	spec["root"].(map[string]any)["readonly"] = true
	var kept []any
	linux := spec["linux"].(map[string]any)
	for _, namespace := range linux["namespaces"].([]any) {
		if namespace.(map[string]any)["type"] != "network" {
			kept = append(kept, namespace)
		}
	}
	linux["namespaces"] = kept
	text, err := json.Marshal(spec)
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(path, text, 0o600))
}

func (c *container) logged() string {
	text, err := os.ReadFile(c.log)
	kit.Must(c.t, err)
	return string(text)
}

// wantRunning fails the test at once if the container has ended.
func (c *container) wantRunning() {
	c.t.Helper()
	select {
	case err := <-c.ended:
		c.t.Fatalf("the container ended: %v", err)
	default:
	}
}

// wantConfined checks, from outside, the limits that the kernel enforces on the process.
func (c *container) wantConfined() {
	c.t.Helper()
	var state struct {
		Pid int `json:"pid"`
	}
	out, err := c.command("state", c.id).Output()
	kit.Must(c.t, err)
	kit.Must(c.t, json.Unmarshal(out, &state))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", state.Pid))
	kit.Must(c.t, err)
	for _, line := range []string{"Uid:\t1000\t1000\t1000\t1000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), line+"\n") {
			c.t.Errorf("the process lacks %q:\n%s", line, status)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", state.Pid))
	kit.Must(c.t, err)
	first := strings.Fields(strings.SplitN(string(mounts), "\n", 2)[0])
	if first[1] != "/" || !strings.HasPrefix(first[3]+",", "ro,") {
		c.t.Errorf("the root file system is mounted %q, want read-only", first)
	}
}

func (c *container) signal(s syscall.Signal) {
	c.t.Helper()
	if out, err := c.command("kill", c.id, strconv.Itoa(int(s))).CombinedOutput(); err != nil {
		c.t.Fatalf("runc kill: %v: %s", err, out)
	}
}

// wantCleanEnd waits until the process ends, with status 0.
func (c *container) wantCleanEnd() {
	c.t.Helper()
	select {
	case err := <-c.ended:
		kit.Must(c.t, err)
	case <-time.After(within):
		c.t.Fatalf("the container has not ended after %s", within)
	}
}
