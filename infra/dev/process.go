package dev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollInterval is how often we look whether a server is ready or gone.
const pollInterval = 5 * time.Millisecond

// Child is a program that this process started and that does not outlive it.
type Child struct {
	Process *os.Process
	Ended   <-chan struct{} // closed when it has ended and was waited for

	failure error
}

// Err says how it ended, as [exec.Cmd.Wait] does; ask when Ended is closed.
func (c *Child) Err() error { return c.failure }

// StartChild starts cmd. The kernel kills it when this process ends, however it ends:
// a test that is killed or times out leaves nothing behind.
func StartChild(cmd *exec.Cmd) (*Child, error) { return start(cmd, syscall.SIGKILL) }

// StartChildHere is StartChild on the calling thread, for a program that is to be in
// that thread's network. The thread must last: the program ends with it.
func StartChildHere(cmd *exec.Cmd) (*Child, error) { return startHere(cmd, syscall.SIGKILL) }

// start is startHere on a thread of its own, which stays until the program has ended.
func start(cmd *exec.Cmd, atOurEnd syscall.Signal) (c *Child, err error) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		child, failure := startHere(cmd, atOurEnd)
		c, err = child, failure
		close(started)
		if failure == nil {
			<-child.Ended
		}
	}()
	<-started
	return c, err
}

// startHere starts cmd, which gets a signal when the calling thread ends; 0 is none.
func startHere(cmd *exec.Cmd, atOurEnd syscall.Signal) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = atOurEnd
	ended := make(chan struct{})
	c := &Child{Ended: ended}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	c.Process = cmd.Process
	go func() {
		c.failure = cmd.Wait()
		close(ended)
	}()
	return c, nil
}

// process is a running server: a child of ours, or one that another process of ours
// started. The [os.Process] inside holds a pidfd, so signals never
// reach another program that got the same pid later.
type process struct {
	handle *os.Process
	exited <-chan struct{} // closed when a child was reaped; nil if adopted
}

// launch starts a server from cmd, away from our terminal: no input, and a
// process group of its own, so that Ctrl-C does not reach it. How it ends is in its
// log.
func launch(cmd *exec.Cmd, atOurEnd syscall.Signal) (*process, error) {
	detach(cmd)
	child, err := start(cmd, atOurEnd)
	if err != nil {
		return nil, err
	}
	return &process{handle: child.Process, exited: child.Ended}, nil
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
