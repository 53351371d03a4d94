package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Note writes the child's pid into a file, for AdoptNoted.
func (c *Child) Note(path string) error {
	return os.WriteFile(path, []byte(strconv.Itoa(c.Process.Pid)+"\n"), privateFile)
}

// AdoptNoted returns the running process whose pid is the first line of a file, if it
// is the program named name and has all of args among its arguments, and nil if it is
// anything else: pids are reused, so a pid from a file proves nothing.
func AdoptNoted(path, name string, args ...string) *Child {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	return adopt(pid, name, args...)
}

func adopt(pid int, name string, args ...string) *Child {
	if pid <= 1 {
		return nil
	}
	// The handle comes first: if the pid changes hands between the two steps,
	// the handle is of the old process, which is then gone.
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	argv := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
	ours := err == nil && filepath.Base(argv[0]) == name
	for _, arg := range args {
		ours = ours && slices.Contains(argv[1:], arg)
	}
	c := &Child{Process: handle}
	if !ours || c.Gone() {
		_ = handle.Release()
		return nil
	}
	return c
}

// FindWatcher finds the watcher of an adopted server: its parent, which has arg among its
// arguments, too. There is none if it was killed.
func (c *Child) FindWatcher(arg string) {
	_, parent := c.stat()
	c.watcher = adopt(parent, "sh", arg)
}

// Gone reports whether the process has ended. A zombie has: it holds nothing any more,
// and in a container it may never be reaped.
func (c *Child) Gone() bool {
	if c.Ended != nil {
		select {
		case <-c.Ended:
			return true
		default:
			return false
		}
	}
	if c.Process.Signal(syscall.Signal(0)) != nil {
		return true
	}
	state, _ := c.stat()
	return state == "" || state == "Z" || state == "X"
}

func (c *Child) stat() (state string, parent int) {
	return stat(filepath.Join("/proc", strconv.Itoa(c.Process.Pid), "stat"))
}

// stat returns the kernel's letter for the state of a process or thread and its parent's
// pid, or "" when there is none.
func stat(path string) (state string, parent int) {
	text, _ := os.ReadFile(path)
	// "pid (name) state parent ...", where name may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
