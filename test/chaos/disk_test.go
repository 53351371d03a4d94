//go:build chaos

package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// diskBytes is the size of Postgres' own disk.
const diskBytes = 2 << 30

// ownDisk puts Postgres' files on a small disk in memory, which can be filled. Only root
// can mount one.
func (w *lone) ownDisk() {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "not root: no disk will be full")
		return
	}
	disk, err := os.MkdirTemp("/var/tmp", "miniserver-chaos-")
	kit.Must(w.t, err)
	kit.Must(w.t, os.Chmod(disk, 0o755)) // Postgres runs as another user
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("mode=755,size=%d", diskBytes)); err != nil {
		kit.Must(w.t, os.Remove(disk))
		fmt.Fprintln(os.Stderr, "no disk will be full:", err)
		return
	}
	w.t.Cleanup(func() { kit.Must(w.t, errors.Join(syscall.Unmount(disk, syscall.MNT_DETACH), os.Remove(disk))) })
	w.postgres.disk, w.postgres.options.Dir = disk, filepath.Join(disk, "postgres")
	kit.Must(w.t, os.Mkdir(w.postgres.options.Dir, 0o755))
}

// fillDisk leaves no room on Postgres' disk. Postgres may end then; its end starts it again.
func (w *lone) fillDisk() (end func() error, err error) {
	ballast := filepath.Join(w.postgres.disk, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(file, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("the disk does not get full: %w", err), file.Close())
	}
	return func() error {
		if err := errors.Join(file.Close(), os.Remove(ballast)); err != nil {
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

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
