package keycloak

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// stopWait is how long a program may take to end when it is asked to; Keycloak
	// takes one second.
	stopWait = 15 * time.Second
	// killWait is how long the kernel may take to end a killed one.
	killWait = 5 * time.Second
)

// process is a running program with a process group of its own, so that Ctrl-C in a
// terminal does not reach it.
type process struct {
	pid     int
	exited  chan struct{}
	failure error // how it ended, once exited is closed
}

// launch starts cmd. The kernel kills it when this process dies, however it dies: a
// test that is killed leaves no Keycloak behind.
func launch(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Pdeathsig is about the thread that started the program, so it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.failure = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// end asks the whole group to end, kills it when it does not, and returns when the
// program is gone.
func (p *process) end() error {
	p.signal(syscall.SIGTERM)
	if p.gone(stopWait) {
		return nil
	}
	p.signal(syscall.SIGKILL)
	if p.gone(killWait) {
		return nil
	}
	return fmt.Errorf("process %d does not end, not even by SIGKILL", p.pid)
}

func (p *process) signal(signal syscall.Signal) {
	select {
	case <-p.exited: // its number may be another's by now
	default:
		_ = syscall.Kill(-p.pid, signal) // fails only if it is gone
	}
}

// gone waits until the program has ended, but not longer than d.
func (p *process) gone(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}
