package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Step is one way to ask a process to end, and how long that may take.
type Step struct {
	Signal syscall.Signal
	Wait   time.Duration
}

// killWait is how long the kernel may take to end a killed process.
const killWait = 5 * time.Second

// End stops the process with the first step that works, and kills it and its children
// when none does. It returns when the process and its watcher are gone.
func (c *Child) End(steps ...Step) error {
	for _, s := range steps {
		_ = c.Process.Signal(s.Signal) // fails only if it is gone already
		if c.waitGone(s.Wait) {
			return c.endWatcher()
		}
	}
	children := c.children()
	_ = c.Process.Kill()
	for _, child := range children {
		_ = child.Kill()
		_ = child.Release()
	}
	if !c.waitGone(killWait) {
		return fmt.Errorf("process %d does not end, not even by SIGKILL", c.Process.Pid)
	}
	return c.endWatcher()
}

// endWatcher kills the watcher and its group: without its server it has nothing to do.
func (c *Child) endWatcher() error {
	if c.watcher == nil || c.watcher.Gone() { // its pid may be another's
		return nil
	}
	_ = syscall.Kill(-c.watcher.Process.Pid, syscall.SIGKILL)
	return c.watcher.End()
}

// waitGone waits until the process is gone, but not longer than d.
func (c *Child) waitGone(d time.Duration) bool {
	for deadline := time.Now().Add(d); !c.Gone(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// children lists the direct children that the kernel reports.
func (c *Child) children() []*os.Process {
	pid := strconv.Itoa(c.Process.Pid)
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
