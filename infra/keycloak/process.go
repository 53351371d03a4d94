package keycloak

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
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
type process struct{ *proc.Child }

// launch starts cmd, which does not outlive this process.
func launch(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child, err := proc.Start(cmd)
	return &process{child}, err
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
	return fmt.Errorf("process %d does not end, not even by SIGKILL", p.Process.Pid)
}

func (p *process) signal(signal syscall.Signal) {
	select {
	case <-p.Ended: // its number may be another's by now
	default:
		_ = syscall.Kill(-p.Process.Pid, signal) // fails only if it is gone
	}
}

// gone waits until the program has ended, but not longer than d.
func (p *process) gone(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.Ended:
		return true
	case <-timer.C:
		return false
	}
}
