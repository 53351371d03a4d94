package dev

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
	f, err := os.OpenFile(path, os.O_RDWR|flags, privateFileMode)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w (%s)", ErrInUse, path)
	}
	return f, nil
}

// userLock is a place among the users of a server: a lock that they share. It is a
// bare descriptor, because the garbage collector closes files that nobody refers to,
// and the server would end.
type userLock struct {
	path string
	fd   int
}

// share joins the users of a server until the lock is closed. It waits for a process
// that holds the lock alone. Call it and sole only while holding the server's start
// lock.
func share(ctx context.Context, path string) (*userLock, error) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, privateFileMode)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	l := &userLock{path, fd}
	if err := l.again(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// again takes the lock that sole may have lost.
func (l *userLock) again(ctx context.Context) error {
	for {
		err := syscall.Flock(l.fd, syscall.LOCK_SH|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("share %s: %w", l.path, err)
		}
		if err := sleep(ctx, lockPoll); err != nil {
			return fmt.Errorf("wait for the process that holds %s: %w", l.path, err)
		}
	}
}

// sole reports whether nobody else shares the lock. Either way it is lost and taken
// again. No user can come in between, for that takes the start lock; the watcher can
// when there are no others, and then keeps it.
func (l *userLock) sole() bool {
	alone := syscall.Flock(l.fd, syscall.LOCK_EX|syscall.LOCK_NB)
	again := syscall.Flock(l.fd, syscall.LOCK_SH|syscall.LOCK_NB)
	return alone == nil || again != nil
}

func (l *userLock) close() error { return syscall.Close(l.fd) }

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
