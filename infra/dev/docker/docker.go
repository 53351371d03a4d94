// Package docker starts a Docker engine, for tests of what people do with Docker. It needs
// root on Debian 12, with iproute2, and the machine must have no other engine.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	name   = "docker" // of its files
	bridge = "docker0"

	readyTimeout = time.Minute
	termWait     = time.Minute // it ends the containers first
)

// packages are Debian 12's; the libraries that they need are found by apt. debootstrap
// downloads with wget.
var packages = []string{"docker.io", "containerd", "runc", "iptables", "debootstrap", "wget"}

var inOrder = proc.Step{Signal: syscall.SIGTERM, Wait: termWait}

// Options say where the engine runs.
type Options struct {
	// Dir holds its images, socket and log. What it holds is kept for the next start: tens
	// of gigabytes.
	Dir string
	// Programs is where its packages are unpacked; the first start downloads them, about
	// 70 MB.
	Programs string
	// Progress, if not nil, gets one line per step of the download.
	Progress io.Writer
}

// Engine is a running Docker engine.
type Engine struct {
	dir, tree, libraries string

	own      io.Closer // the lock on dir
	users    *proc.Users
	stopping sync.Mutex
	running  *proc.Child // nil once stopped
}

// Start returns an engine that answers, without containers: those that an earlier one left
// behind are removed. Errors say what to do.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a Docker engine needs root")
	}
	e := &Engine{}
	var err error
	if e.dir, err = home.Make(o.Dir); err != nil {
		return nil, fmt.Errorf("start Docker: %w", err)
	}
	if e.tree, e.libraries, err = apt.Unpacked(ctx, o.Programs, name, o.Progress, packages...); err != nil {
		return nil, err
	}
	if e.own, err = proc.TryLock(e.file(".running")); err != nil {
		return nil, fmt.Errorf("start Docker in %s, where another may run: %w", e.dir, err)
	}
	// It waits for an engine that ends because its process was killed.
	if e.users, err = proc.Share(ctx, e.file(proc.StartSuffix)); err != nil {
		return nil, errors.Join(fmt.Errorf("start Docker: %w", err), e.own.Close())
	}
	if err := e.run(ctx); err != nil {
		_ = errors.Join(e.users.Close(), e.own.Close())
		return nil, fmt.Errorf("start Docker in %s: %w", e.dir, err)
	}
	return e, nil
}

// Host is the engine's address, for DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + e.file(".sock") }

// Environment is that of programs that talk to the engine, docker among them.
func (e *Engine) Environment() []string {
	return append(e.environment(), "DOCKER_HOST="+e.Host(), "DOCKER_BUILDKIT=1", "DOCKER_CONFIG="+filepath.Join(e.dir, "config"),
		"HOME="+os.Getenv("HOME"))
}

// Command returns a command of the docker CLI. It is killed with ctx.
func (e *Engine) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	return e.Run(ctx, filepath.Join(e.tree, "usr/bin/docker"), arguments...)
}

// Run returns a command that finds docker and the engine.
func (e *Engine) Run(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	command := proc.Command(ctx, program, arguments...)
	command.Env = e.Environment()
	return command
}

// Debootstrap returns a command that makes the smallest Debian of a suite in a folder.
func (e *Engine) Debootstrap(ctx context.Context, suite, folder string) *exec.Cmd {
	command := e.Run(ctx, filepath.Join(e.tree, "usr/sbin/debootstrap"), "--variant=minbase", suite, folder)
	command.Env = append(command.Env, "DEBOOTSTRAP_DIR="+filepath.Join(e.tree, "usr/share/debootstrap"))
	return command
}

// Plugin makes a program a command of the docker CLI.
func (e *Engine) Plugin(program string) error {
	plugins := filepath.Join(e.dir, "config", "cli-plugins")
	link := filepath.Join(plugins, filepath.Base(program))
	if err := errors.Join(os.MkdirAll(plugins, home.PublicDir), os.RemoveAll(link)); err != nil {
		return err
	}
	return os.Symlink(program, link)
}

// Stop ends the containers and the engine, and removes its rules and bridges from the
// machine's network. Calling it again does nothing.
func (e *Engine) Stop() error {
	e.stopping.Lock()
	defer e.stopping.Unlock()
	if e.running == nil {
		return nil
	}
	// Networks that somebody made, kind among them, have bridges that outlive the engine.
	ids, err := e.Command(context.Background(), "network", "ls", "--quiet", "--filter", "driver=bridge").Output()
	if endErr := e.running.End(inOrder); endErr != nil {
		err = errors.Join(err, fmt.Errorf("stop Docker in %s: %w", e.dir, endErr))
	}
	e.running = nil
	err = errors.Join(err, e.users.Close(), e.restoreNetwork(), e.own.Close())
	for _, id := range strings.Fields(string(ids)) {
		err = errors.Join(err, removeLink("br-"+id))
	}
	return err
}

// removeLink removes one of the machine's network interfaces, if it is there.
func removeLink(name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil
	}
	if said, err := exec.Command("ip", "link", "delete", name).CombinedOutput(); err != nil {
		return fmt.Errorf("remove %s: %w: %s", name, err, said)
	}
	return nil
}

func (e *Engine) file(suffix string) string { return filepath.Join(e.dir, name+suffix) }

// bin holds the programs that the engine calls by names that the packages do not have.
func (e *Engine) bin() string { return filepath.Join(e.dir, "bin") }

func (e *Engine) environment() []string {
	path := e.bin()
	for _, dir := range []string{"usr/bin", "usr/sbin"} {
		path += ":" + filepath.Join(e.tree, dir)
	}
	libraries, _, _ := strings.Cut(e.libraries, ":")
	var proxies []string
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if value := os.Getenv(name); value != "" {
			proxies = append(proxies, name+"="+value)
		}
	}
	return append(proxies,
		"PATH="+path+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
		"LD_LIBRARY_PATH="+e.libraries, "XTABLES_LIBDIR="+filepath.Join(libraries, "xtables"))
}

func (e *Engine) run(ctx context.Context) error {
	if err := e.links(); err != nil {
		return err
	}
	if err := e.saveNetwork(ctx); err != nil {
		return err
	}
	mtu, err := smallestMTU()
	if err != nil {
		return err
	}
	command := exec.Command(filepath.Join(e.tree, "usr/sbin/dockerd"), "--host", e.Host(),
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"), "--pidfile", e.file(".pid"),
		"--config-file", e.file(".json"), // of this engine only
		"--storage-driver=overlay2", "--mtu", strconv.Itoa(mtu), "--add-runtime", "bounded="+filepath.Join(e.bin(), "bounded-runc"), "--default-runtime=bounded")
	command.Env = e.environment()
	if err := os.WriteFile(e.file(".json"), []byte("{}\n"), home.PrivateFile); err != nil {
		return err
	}
	e.running, err = proc.Server{
		Command: command, Log: e.file(".log"), Within: readyTimeout, Stop: []proc.Step{inOrder},
		Users: e.users, Last: syscall.SIGTERM,
		Ready: func(ctx context.Context) error {
			if said, err := e.Command(ctx, "info").CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, proc.LastLines(string(said), ""))
			}
			return nil
		},
	}.Start(ctx)
	if err != nil {
		return errors.Join(err, e.restoreNetwork())
	}
	// Those of a process that was killed start again, and hold ports.
	left, err := e.Command(ctx, "ps", "--all", "--quiet").Output()
	if ids := strings.Fields(string(left)); err == nil && len(ids) > 0 {
		err = e.Command(ctx, append([]string{"rm", "--force", "--volumes"}, ids...)...).Run()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("remove what an earlier engine ran: %w", err), e.running.End(inOrder), e.restoreNetwork())
	}
	return nil
}

// bounded is the engine's OCI runtime: runc, which fails to give a privileged container a
// capability that this process does not have. Some machines give root all of them but
// CAP_SYS_RESOURCE.
const bounded = `#!/bin/sh
previous= file=
for argument; do
  case $previous in
  --bundle) file=$argument/config.json ;;
  --process) file=$argument ;;
  esac
  previous=$argument
done
if [ -n "$file" ] && [ $((0x$(sed -n 's/^CapBnd:\t//p' /proc/self/status) >> 24 & 1)) = 0 ]; then
  sed -i -e 's/"CAP_SYS_RESOURCE",//g' -e 's/,"CAP_SYS_RESOURCE"//g' "$file"
fi
exec runc "$@"
`

// links makes the programs that the packages' installation would make.
func (e *Engine) links() error {
	if err := errors.Join(os.RemoveAll(e.bin()), os.MkdirAll(e.bin(), home.PublicDir)); err != nil {
		return err
	}
	legacy := filepath.Join(e.tree, "usr/sbin/xtables-legacy-multi")
	for _, program := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(legacy, filepath.Join(e.bin(), program)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(e.bin(), "bounded-runc"), []byte(bounded), home.PublicDir)
}

// rules is the file with the machine's rules before this engine; it is of no use after a
// reboot.
func (e *Engine) rules() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return e.file(".iptables-" + strings.TrimSpace(string(boot)))
}

// saveNetwork notes the machine's rules, which the engine adds to.
func (e *Engine) saveNetwork(ctx context.Context) error {
	if _, err := os.Stat(e.rules()); err == nil { // an engine was killed here
		if err := e.restoreNetwork(); err != nil {
			return err
		}
	}
	if _, err := net.InterfaceByName(bridge); err == nil {
		return errors.New("the machine has a Docker engine already; stop it, and remove its bridge: ip link delete " + bridge)
	}
	rules, err := e.Run(ctx, filepath.Join(e.bin(), "iptables-save")).Output()
	if err != nil {
		return fmt.Errorf("iptables-save: %w", err)
	}
	// A table that is not there yet was empty.
	for table, chains := range map[string][]string{
		"*filter": {"INPUT", "FORWARD", "OUTPUT"}, "*nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	} {
		if !strings.Contains(string(rules), table+"\n") {
			rules = append(rules, table+"\n"...)
			for _, chain := range chains {
				rules = append(rules, ":"+chain+" ACCEPT [0:0]\n"...)
			}
			rules = append(rules, "COMMIT\n"...)
		}
	}
	return os.WriteFile(e.rules(), rules, home.PrivateFile)
}

func (e *Engine) restoreNetwork() error {
	rules, err := os.Open(e.rules())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer rules.Close()
	restore := e.Run(context.Background(), filepath.Join(e.bin(), "iptables-restore"))
	restore.Stdin = rules
	if said, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, said)
	}
	if err := removeLink(bridge); err != nil {
		return err
	}
	return os.Remove(e.rules())
}

// smallestMTU returns that of the machine's interfaces: what containers send must fit.
func smallestMTU() (int, error) {
	interfaces, err := net.Interfaces()
	smallest := 1500
	for _, i := range interfaces {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			smallest = min(smallest, i.MTU)
		}
	}
	return smallest, err
}
