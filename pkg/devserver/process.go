package devserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollInterval is how often we look whether a server is ready or gone.
const pollInterval = 5 * time.Millisecond

// process is a running server: a child of ours, or one adopted from a process
// that was killed. The [os.Process] inside holds a pidfd, so signals never
// reach another program that got the same pid later.
type process struct {
	handle *os.Process
	exited chan struct{} // closed when a child was reaped; nil if adopted
}

// launch starts a server from cmd, away from our terminal: no input, and a
// process group of its own, so that Ctrl-C does not reach it.
func launch(cmd *exec.Cmd) (*process, error) {
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &process{handle: cmd.Process, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return p, nil
}

// detach gives cmd its own process group, a minimal environment if it has none
// and a working directory every user can be in.
func detach(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Dir = "/"
}

// serverEnv is the whole environment of a server.
func serverEnv(libraryPath string) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C", "LC_ALL=C"}
	if libraryPath != "" {
		env = append(env, "LD_LIBRARY_PATH="+libraryPath)
	}
	return env
}

// waitGone waits until the process is gone, but not longer than d.
func (p *process) waitGone(d time.Duration) bool {
	for deadline := time.Now().Add(d); !p.gone(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// stopStep is one way to ask a server to end, and how long that may take.
type stopStep struct {
	signal syscall.Signal
	wait   time.Duration
}

// killWait is how long the kernel may take to end a killed process.
const killWait = 5 * time.Second

// end stops the process with the first step that works, and kills it and its
// children when none does. It returns when the process is gone.
func (p *process) end(steps ...stopStep) error {
	for _, s := range steps {
		_ = p.handle.Signal(s.signal) // fails only if it is gone already
		if p.waitGone(s.wait) {
			return nil
		}
	}
	children := p.children()
	_ = p.handle.Kill()
	for _, child := range children {
		_ = child.Kill()
		_ = child.Release()
	}
	if !p.waitGone(killWait) {
		return fmt.Errorf("process %d does not end, not even by SIGKILL", p.handle.Pid)
	}
	return nil
}

// children lists the direct children, as far as the kernel tells.
func (p *process) children() []*os.Process {
	pid := strconv.Itoa(p.handle.Pid)
	b, _ := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	var list []*os.Process
	for _, field := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil {
			if child, err := os.FindProcess(pid); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}
