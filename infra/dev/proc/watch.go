package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// watch is the parent of a server that the kernel cannot end together with us: several
// processes share it, or it changes its user, which drops the signal. It waits for the
// exclusive lock of the users (descriptor 3), which it gets when the last of them has
// ended, however it ended. Then it admits no user until the server is gone. It writes the
// server's pid to descriptor 4.
const watch = `signal=$1; shift
"$@" 3>&- 4>&- &
echo $! >&4
exec 4>&-
flock -x 3 && kill -$signal $!
wait $!`

// launchWatched starts a server that is sent a signal when no process shares the lock of
// its users any more; the caller shares it.
func launchWatched(cmd *exec.Cmd, users *Users, atTheEnd syscall.Signal) (*Child, error) {
	// Open the file anew: a lock belongs to the open file.
	lock, err := os.OpenFile(users.path, os.O_RDWR, privateFile)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	name := cmd.Path
	cmd.Args = append([]string{"/bin/sh", "-c", watch, "sh", strconv.Itoa(int(atTheEnd)), name}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = "/bin/sh", []*os.File{lock, write}
	detach(cmd)
	watcher, err := start(cmd, 0)
	write.Close()
	if err != nil {
		return nil, err
	}
	line, _ := bufio.NewReader(read).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err == nil {
		// The watcher has not reaped it: the pid is not reused, even if the server has
		// ended.
		var handle *os.Process
		if handle, err = os.FindProcess(pid); err == nil {
			return &Child{Process: handle, watcher: watcher}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s did not start: %w", name, err), (&Child{watcher: watcher}).endWatcher())
}
