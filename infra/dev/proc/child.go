// Package proc starts, watches and ends the processes of development and of tests:
// servers, and the programs that are tested. None outlives the process that started it,
// even if that is killed. It also has what servers on one machine need: a port, a log, a
// lock.
//
// Servers listen on 127.0.0.1 only, on ports below the ephemeral range. They run in
// process groups of their own, so Ctrl-C in a terminal reaches the program that
// started them and not them; that program ends them.
package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// pollInterval is how often a process is checked for being ready or gone.
const pollInterval = 5 * time.Millisecond

// privateFile is the mode of files that only we may read.
const privateFile = 0o600

// Child is a program that this process started and that does not outlive it, or a
// server of another process of ours that it adopted.
type Child struct {
	// Process holds a pidfd, so signals never reach another program that got the same
	// pid later.
	Process *os.Process
	// Ended is closed when the child has ended and was waited for; nil if adopted.
	Ended <-chan struct{}

	failure error
	watcher *Child // its parent, if several processes share it
}

// Err says how it ended, as [exec.Cmd.Wait] does; ask when Ended is closed.
func (c *Child) Err() error { return c.failure }

// Start starts cmd. The kernel kills it when this process ends, however it ends: a
// test that is killed or times out leaves nothing behind.
func Start(cmd *exec.Cmd) (*Child, error) { return start(cmd, syscall.SIGKILL) }

// StartHere is Start on the calling thread, for a program that is to be in that
// thread's network. The thread must last: the program ends with it.
func StartHere(cmd *exec.Cmd) (*Child, error) { return startHere(cmd, syscall.SIGKILL) }

// Launch is Start away from our terminal: the program has no input, a process group of
// its own, so that Ctrl-C does not reach it, and, if cmd names none, a working
// directory that every user can be in.
func Launch(cmd *exec.Cmd) (*Child, error) {
	detach(cmd)
	return start(cmd, syscall.SIGKILL)
}

// Command returns a command to be waited for, away from our terminal. It is killed with
// its children when ctx ends.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	detach(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killedOutputWait
	return cmd
}

// killedOutputWait is how long we read what a killed command printed.
const killedOutputWait = time.Second

func detach(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
}

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

// Environment returns the whole environment of a server, whose libraries are in the
// directories of libraryPath, if that is not empty.
func Environment(libraryPath string) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C", "LC_ALL=C"}
	if libraryPath != "" {
		env = append(env, "LD_LIBRARY_PATH="+libraryPath)
	}
	return env
}

// pauseWait is how long the kernel may take to stop a process's threads.
const pauseWait = 10 * time.Second

// Pause stops the process until Resume, and returns when each of its threads stands still:
// the signal alone leaves those that run on a busy machine time to answer.
func (c *Child) Pause() error {
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(pauseWait); !c.still(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d runs %s after SIGSTOP", c.Process.Pid, pauseWait)
		}
	}
	return nil
}

// still reports whether all threads are stopped.
func (c *Child) still() bool {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(c.Process.Pid), "task", "*", "stat"))
	for _, thread := range threads {
		if state, _ := stat(thread); state != "T" && state != "" {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// Resume ends a Pause.
func (c *Child) Resume() error { return c.Process.Signal(syscall.SIGCONT) }
