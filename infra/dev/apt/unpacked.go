package apt

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Unpacked returns the directory below dir in which packages of Debian are unpacked, with
// the shared libraries that they need, and the LD_LIBRARY_PATH for their programs. The
// first call for a name downloads them (one line of progress per step), later calls find
// them. Nothing is installed in the system, and root is not needed. It is for servers
// that only some people need; [Ensure] is for those that all need. Errors say what to do.
func Unpacked(ctx context.Context, dir, name string, progress io.Writer, packages ...string) (tree, libraries string, err error) {
	if progress == nil {
		progress = io.Discard
	}
	f := finder{progress: progress}
	if f.account, err = home.ServerAccount(); err != nil {
		return "", "", err
	}
	if f.dir, err = home.Programs(dir, f.account); err != nil {
		return "", "", fmt.Errorf("prepare %s for server programs: %w", dir, err)
	}
	tree = filepath.Join(f.dir, name)
	if there(tree) {
		return tree, libraryPath(tree), nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installTimeout, fmt.Errorf("unpacking %s took longer than %s", name, installTimeout))
	defer cancel()
	held, err := proc.Lock(ctx, filepath.Join(f.dir, installLock))
	if err != nil {
		return "", "", err
	}
	defer held.Close()
	if there(tree) { // another process was faster
		return tree, libraryPath(tree), nil
	}
	tmp, err := os.MkdirTemp(f.dir, unpackPrefix)
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(tmp)
	a, err := newApt(tmp, progress)
	if err != nil {
		return "", "", err
	}
	choose := func(ctx context.Context) ([]string, error) { return a.simulate(ctx, packages...) }
	if err := f.unpack(ctx, a, name, choose, nil); err != nil {
		return "", "", fmt.Errorf("get %s: %w", name, err)
	}
	return tree, libraryPath(tree), nil
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
