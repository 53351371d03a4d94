package dev

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// adopt returns the running process pid if it is the program named name and
// has all of args among its arguments, and nil if it is anything else: pids are
// reused, so a pid from a file proves nothing.
func adopt(pid int, name string, args ...string) *process {
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
	p := &process{handle: handle}
	if !ours || p.gone() {
		_ = handle.Release()
		return nil
	}
	return p
}

// gone reports whether the process has ended. A zombie has: it holds nothing
// any more, and in a container there may be nobody to reap it.
func (p *process) gone() bool {
	if p.exited != nil {
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	}
	if p.handle.Signal(syscall.Signal(0)) != nil {
		return true
	}
	state, _ := p.stat()
	return state == "" || state == "Z" || state == "X"
}

// stat returns the kernel's letter for the process's state and its parent's pid, or
// "" when there is no such process.
func (p *process) stat() (state string, parent int) {
	stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.handle.Pid), "stat"))
	// "pid (name) state parent ...", where name may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// parent adopts the process's parent, if it is the program named name and has all of
// args among its arguments.
func (p *process) parent(name string, args ...string) *process {
	_, parent := p.stat()
	return adopt(parent, name, args...)
}
