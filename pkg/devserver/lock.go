package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	// startSuffix names the lock held while a server is being started or
	// stopped; usersSuffix the one every process using the server shares.
	startSuffix = ".lock"
	usersSuffix = ".users"

	lockPoll = 10 * time.Millisecond
	// stopLockTimeout bounds how long Stop waits for another process that is
	// just starting or stopping the same server.
	stopLockTimeout = 30 * time.Second
)

// The locks are flock(2) locks: the kernel drops them when their holder dies,
// however it dies, so a killed process never blocks the next one. Go opens
// files close-on-exec, so the servers do not inherit them.

// lock waits until it holds the exclusive lock on the file at path, which it
// creates. Closing the returned file releases the lock.
func lock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, privateFileMode)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if err := sleep(ctx, lockPoll); err != nil {
			f.Close()
			return nil, fmt.Errorf("wait for the process that holds %s: %w", path, err)
		}
	}
}

// tryLock takes the exclusive lock on the file at path or returns ErrInUse.
func tryLock(path string, flags int) (*os.File, error) {
	return flock(path, flags, syscall.LOCK_EX)
}

// share joins the users of a server: a shared lock, held until the file is
// closed. Call it and soleUser only while holding the server's start lock.
func share(path string) (*os.File, error) {
	return flock(path, os.O_CREATE, syscall.LOCK_SH)
}

func flock(path string, flags, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flags, privateFileMode)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w (%s)", ErrInUse, path)
	}
	return f, nil
}

// soleUser reports whether nobody but f's holder shares the lock of f.
func soleUser(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	// Either way the shared lock is lost and taken again; nobody can come in
	// between, for that takes the start lock.
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return err == nil
}

// sleep waits for d or until ctx is done, and returns ctx's error then.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
