//go:build chaos

package chaos_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Machines are network namespaces on one switch, which is a namespace of its own, so that
// no rule of this machine's firewall applies to what they say to each other. This process,
// and those that it starts here, are connected to the switch as well.
const (
	space    = "miniserver-ha-"
	switched = space + "switch"
	ourEnd   = "miniserver-ha" // of the cable to the switch
	subnet   = "10.213.77."
)

type machine struct {
	name     string
	space    string
	address  string
	dir      string
	others   []*machine
	services []*service
}

// newMachines makes n of them, with folders below dir. They end with the test; those that
// a killed test left are removed first.
func newMachines(t *testing.T, dir string, n int) (list []*machine) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("only root can make machines with networks of their own; run this as root")
	}
	remove := func() {
		for i := range n {
			_ = ip("netns del %s%d", space, i+1)
		}
		_ = ip("netns del %s", switched)
	}
	remove()
	t.Cleanup(remove)
	for _, line := range []string{
		"netns add " + switched,
		"-n " + switched + " link add bridge type bridge",
		"-n " + switched + " link set bridge up",
		"link add " + ourEnd + " type veth peer name here netns " + switched,
		"-n " + switched + " link set here master bridge up",
		"address add " + subnet + "254/24 dev " + ourEnd,
		"link set " + ourEnd + " up",
	} {
		kit.Must(t, ip("%s", line))
	}
	for i := range n {
		m := &machine{name: fmt.Sprint("m", i+1), space: fmt.Sprint(space, i+1), address: fmt.Sprint(subnet, i+1)}
		m.dir = filepath.Join(dir, m.name)
		kit.Must(t, os.Mkdir(m.dir, 0o755))
		for _, line := range []string{
			"netns add " + m.space,
			"-n " + switched + " link add " + m.name + " type veth peer name eth0 netns " + m.space,
			"-n " + switched + " link set " + m.name + " master bridge up",
			"-n " + m.space + " address add " + m.address + "/24 dev eth0",
			"-n " + m.space + " link set eth0 up",
			"-n " + m.space + " link set lo up",
			// What comes from an address to which there is no way back is dropped: see isolate.
			"netns exec " + m.space + " sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1",
		} {
			kit.Must(t, ip("%s", line))
		}
		list = append(list, m)
	}
	for _, m := range list {
		for _, other := range list {
			if other != m {
				m.others = append(m.others, other)
			}
		}
	}
	return list
}

// ip runs the program of that name.
func ip(format string, arguments ...any) error {
	line := fmt.Sprintf(format, arguments...)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, bytes.TrimSpace(out))
	}
	return nil
}

// isolate drops everything between the machine and the others, which clients still reach.
func (m *machine) isolate() error { return m.routes("add") }

func (m *machine) rejoin() error { return m.routes("del") }

func (m *machine) routes(change string) (err error) {
	for _, other := range m.others {
		err = errors.Join(err, ip("-n %s route %s blackhole %s/32", m.space, change, other.address))
	}
	return err
}

// unplug drops everything between the machine and anybody else.
func (m *machine) unplug() error { return ip("-n %s link set %s down", switched, m.name) }

func (m *machine) plug() error { return ip("-n %s link set %s up", switched, m.name) }

// kill ends all its services, one right after the other.
func (m *machine) kill() (err error) {
	for _, s := range m.services {
		err = errors.Join(err, s.kill())
	}
	return err
}

// start starts all its services again.
func (m *machine) start() (err error) {
	for _, s := range m.services {
		err = errors.Join(err, s.start())
	}
	return err
}

// service is a program on a machine, with all processes that it starts.
type service struct {
	*machine
	name        string
	account     *home.Account // nil: root
	environment []string
	command     []string
	child       *proc.Child
}

// service adds one to the machine; as what account it runs is up to the caller.
func (m *machine) service(name string, environment []string, command ...string) *service {
	s := &service{machine: m, name: name, environment: environment, command: command}
	m.services = append(m.services, s)
	return s
}

// start starts it; what it prints is added to its log. Its processes have process ids of
// their own, of which it has the first, so that none outlives it.
func (s *service) start() error {
	log, err := os.OpenFile(filepath.Join(s.dir, s.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := []string{"netns", "exec", s.space, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"}
	if as := s.account.Credential(); as != nil {
		command = append(command, "setpriv", "--reuid", fmt.Sprint(as.Uid), "--regid", fmt.Sprint(as.Gid), "--clear-groups", "--pdeathsig", "KILL")
	}
	cmd := exec.Command("ip", append(command, s.command...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environment, log, log
	s.child, err = proc.Launch(cmd)
	return err
}

// kill ends it and its processes at once. One that does not run stays as it is.
func (s *service) kill() error {
	if s.child == nil { // it was never started
		return nil
	}
	return s.child.End()
}

// killProgram ends those processes of this machine that have this program's name and
// argument at once, and nothing else.
func killProgram(name, argument string) error {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	killed := 0
	for _, file := range found {
		text, _ := os.ReadFile(file) // it may be gone
		arguments := strings.Split(string(text), "\x00")
		if filepath.Base(arguments[0]) != name || !strings.Contains(string(text), argument+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("no %s runs with %s", name, argument)
	}
	return nil
}
