package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrInUse is returned (wrapped) where a running process uses a directory in a way that
// cannot be shared.
var ErrInUse = errors.New("directory is in use by a running server")

const (
	// StartSuffix names the lock held while a server is being started or
	// stopped; UsersSuffix the one every process using the server shares.
	StartSuffix = ".lock"
	UsersSuffix = ".users"

	lockPoll = 10 * time.Millisecond
)

// The locks are flock(2) locks: the kernel drops them when their holder dies,
// however it dies, so a killed process never blocks the next one. Go opens
// files close-on-exec, so the servers do not inherit them; but a child that another
// goroutine starts has them until its exec, and with them the lock. Closing a file would
// leave it locked that long, so unlock it first.

// Held is an exclusive lock.
type Held struct{ file *os.File }

// Close releases the lock.
func (h *Held) Close() error {
	return errors.Join(syscall.Flock(int(h.file.Fd()), syscall.LOCK_UN), h.file.Close())
}

// Lock waits until it holds the exclusive lock on the file at path, which it
// creates.
func Lock(ctx context.Context, path string) (*Held, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, privateFile)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &Held{f}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if err := Sleep(ctx, lockPoll); err != nil {
			f.Close()
			return nil, fmt.Errorf("wait for the process that holds %s: %w", path, err)
		}
	}
}

// TryLock takes the exclusive lock on the file at path, which it creates, or returns
// ErrInUse.
func TryLock(path string) (*Held, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, privateFile)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w (%s)", ErrInUse, path)
	}
	return &Held{f}, nil
}

// Users is a share of the lock that all users of a server hold. It is a bare descriptor,
// because the garbage collector closes unreferenced files, and the server would end.
type Users struct {
	path string
	fd   int
}

// Share joins the users of a server until the lock is closed. It waits while a process
// holds the lock alone. Call it and Sole only while holding the server's start lock.
func Share(ctx context.Context, path string) (*Users, error) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, privateFile)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	u := &Users{path, fd}
	if err := u.Again(ctx); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// Again retakes the lock that Sole may have lost.
func (u *Users) Again(ctx context.Context) error {
	for {
		err := syscall.Flock(u.fd, syscall.LOCK_SH|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("share %s: %w", u.path, err)
		}
		if err := Sleep(ctx, lockPoll); err != nil {
			return fmt.Errorf("wait for the process that holds %s: %w", u.path, err)
		}
	}
}

// Sole reports whether no other process shares the lock, which it releases and retakes.
// No user can join in between, since that takes the start lock; the watcher can when
// there are no other users, and then keeps the lock.
func (u *Users) Sole() bool {
	alone := syscall.Flock(u.fd, syscall.LOCK_EX|syscall.LOCK_NB)
	again := syscall.Flock(u.fd, syscall.LOCK_SH|syscall.LOCK_NB)
	return alone == nil || again != nil
}

// Close leaves the users.
func (u *Users) Close() error {
	return errors.Join(syscall.Flock(u.fd, syscall.LOCK_UN), syscall.Close(u.fd))
}

// Sleep waits for d or until ctx is done, and returns ctx's error then.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
