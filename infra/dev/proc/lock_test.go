package proc_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// A child between fork and exec has every open file, and with it the lock. Releasing a
// lock does not wait for that child.
func TestLockIsReleasedBesideAFork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := proc.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	copyDescriptors(t, path)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the child's exec is not awaited
	defer cancel()
	users, err := proc.Share(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	copyDescriptors(t, path)
	if err := users.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := proc.TryLock(path)
	if err != nil {
		t.Fatalf("the lock is held after it was closed: %v", err)
	}
	_ = again.Close()
}

// copyDescriptors copies those of path, as fork does.
func copyDescriptors(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, entry := range entries {
		name := filepath.Join("/proc/self/fd", entry.Name())
		if target, err := os.Readlink(name); err != nil || target != path {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		duplicate, err := syscall.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(duplicate) })
		copied++
	}
	if copied == 0 {
		t.Fatal("no descriptor of the lock is open")
	}
}
