//go:build chaos

package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// diskBytes is the size of Postgres' own disk: an hour of chaos writes two GiB.
const diskBytes = 8 << 30

// ownDisk puts Postgres' files on a disk in memory, which can be made full. Only root can
// mount one.
func (w *lone) ownDisk() {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "not root: no disk will be full")
		return
	}
	disk, err := os.MkdirTemp("/var/tmp", "miniserver-chaos-")
	kit.Must(w.t, err)
	kit.Must(w.t, os.Chmod(disk, 0o755)) // Postgres runs as another user
	if err := mount(disk, 0, diskBytes); err != nil {
		kit.Must(w.t, os.Remove(disk))
		fmt.Fprintln(os.Stderr, "no disk will be full:", err)
		return
	}
	w.t.Cleanup(func() { kit.Must(w.t, errors.Join(syscall.Unmount(disk, syscall.MNT_DETACH), os.Remove(disk))) })
	w.postgres.disk, w.postgres.options.Dir = disk, filepath.Join(disk, "postgres")
	kit.Must(w.t, os.Mkdir(w.postgres.options.Dir, 0o755))
}

func mount(disk string, flags uintptr, bytes uint64) error {
	return syscall.Mount("tmpfs", disk, "tmpfs", flags, fmt.Sprintf("mode=755,size=%d", bytes))
}

// fillDisk makes Postgres' disk as small as what is on it. Postgres may end then; its end
// starts it again.
func (w *lone) fillDisk() (end func() error, err error) {
	disk := w.postgres.disk
	for deadline := time.Now().Add(startWithin); ; {
		var now syscall.Statfs_t
		if err := syscall.Statfs(disk, &now); err != nil {
			return nil, err
		}
		err := mount(disk, syscall.MS_REMOUNT, (now.Blocks-now.Bfree)*uint64(now.Bsize))
		if err == nil {
			break
		}
		// EINVAL: more was written meanwhile.
		if !errors.Is(err, syscall.EINVAL) || time.Now().After(deadline) {
			return nil, err
		}
	}
	return func() error {
		if err := mount(disk, syscall.MS_REMOUNT, diskBytes); err != nil {
			return err
		}
		for deadline := time.Now().Add(startWithin); ; kit.Pause(poll) {
			err := w.admin.Ping(w.t.Context())
			if err == nil || time.Now().After(deadline) {
				return err
			}
			if errors.Is(err, syscall.ECONNREFUSED) { // it has ended
				return errors.Join(w.postgres.Kill(), w.postgres.start())
			}
		}
	}, nil
}
