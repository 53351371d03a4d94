package apt

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	installTimeout = 15 * time.Minute
	installLock    = "install.lock"
	unpackPrefix   = "unpack-"

	bytesPerMB = 1e6
)

// install unpacks the programs that are missing. One process at a time does so; the
// others wait and use its result.
func (f *finder) install(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, installTimeout,
		fmt.Errorf("unpacking the server programs took longer than %s", installTimeout))
	defer cancel()
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("PostgreSQL or Redis is missing, and so is %s to get it with", tool)
		}
	}
	held, err := proc.Lock(ctx, filepath.Join(f.dir, installLock))
	if err != nil {
		return err
	}
	defer held.Close()
	have := f.find(ctx)
	if have.complete() {
		return nil
	}
	interrupted, _ := filepath.Glob(filepath.Join(f.dir, unpackPrefix+"*"))
	for _, path := range interrupted {
		_ = os.RemoveAll(path)
	}
	tmp, err := os.MkdirTemp(f.dir, unpackPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	a, err := newApt(tmp, f.progress)
	if err != nil {
		return err
	}
	if f.ignoreLists {
		a.lists = f.dir // where there are none
	}
	check := func(tree, name string) error { return f.check(ctx, tree, name) }
	if have.PostgresDir == "" {
		if err := f.unpack(ctx, a, unpackedPostgres, a.postgresPackages, check); err != nil {
			return fmt.Errorf("get PostgreSQL: %w", err)
		}
	}
	if have.RedisServer == "" {
		if err := f.unpack(ctx, a, unpackedRedis, a.redisPackages, check); err != nil {
			return fmt.Errorf("get Redis: %w", err)
		}
	}
	return nil
}

// unpack downloads the packages that choose returns and unpacks them under another name
// first, so that the tree never exists incomplete. check may refuse the tree; nil accepts
// any.
func (f *finder) unpack(ctx context.Context, a *apt, name string, choose func(context.Context) ([]string, error), check func(tree, name string) error) error {
	began := time.Now()
	debs, err := a.fetch(ctx, filepath.Join(a.dir, name+"-debs"), choose)
	if err != nil {
		return err
	}
	tree := filepath.Join(a.dir, name)
	if err := os.Mkdir(tree, home.PublicDir); err != nil {
		return err
	}
	for _, deb := range debs {
		cmd := exec.CommandContext(ctx, "dpkg", "-x", deb, tree)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(deb), err, proc.LastLines(string(out), ""))
		}
	}
	if check != nil {
		if err := check(tree, name); err != nil {
			return err
		}
	}
	target := filepath.Join(f.dir, name)
	if err := os.RemoveAll(target); err != nil { // it exists if it was unusable
		return err
	}
	if err := os.Rename(tree, target); err != nil {
		return err
	}
	fmt.Fprintf(f.progress, "unpacked %s: %d packages, %.1f MB downloaded, %.1f MB in %s, %.1f s\n",
		name, len(debs), SizeMB(filepath.Dir(debs[0])), SizeMB(target), target, time.Since(began).Seconds())
	return nil
}

// check runs the unpacked program, which fails at once when a library is missing.
func (f *finder) check(ctx context.Context, tree, name string) error {
	program, least := filepath.Join(tree, "usr/bin", "redis-server"), minRedisMajor
	if name == unpackedPostgres {
		// newest asks account.Reaches, and tmp is private until renamed: use no account.
		private := finder{}
		program, least = filepath.Join(private.newest(filepath.Join(tree, systemPostgres)), "postgres"), minPostgresMajor
	}
	if major := majorVersion(ctx, program, libraryPath(tree)); major < least {
		return fmt.Errorf("the packages hold no %s of version %d or later that runs here", name, least)
	}
	return nil
}

// SizeMB returns the size of the files under dir, in millions of bytes. Files may come
// and go meanwhile.
func SizeMB(dir string) float64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return float64(sum) / bytesPerMB
}
