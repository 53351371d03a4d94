// Package dev starts the three servers miniserver needs (PostgreSQL,
// Redis and NATS JetStream) on any Debian machine that has nothing but Go and
// git, for `make run` and for tests. It needs no root, no container, no
// terminal and no installed service: [Ensure] uses the programs the machine
// has and unpacks the missing ones from Debian's packages into a directory of
// ours, [StartPostgres] and [StartRedis] run them as ordinary child processes,
// and [StartNATS] runs the NATS server inside this process.
//
// # Directories
//
// Everything a server owns lives in the Dir it was started with: data, log,
// password, port. Starting again on the same Dir finds the same data behind
// the same password and, when it is still free, the same port. Delete the
// directory with [Remove] to start from nothing. There is one exception:
// PostgreSQL refuses to run as root, so root runs it as another user, and when
// that user cannot reach Dir (a clone in /root, a test's temporary directory)
// the data goes to a directory under /var/tmp which Dir/location names.
//
// # Lifetime
//
// Servers listen on 127.0.0.1 only, on ports below the ephemeral range, and
// always ask for a random password. They run in process groups of their own,
// so Ctrl-C in a terminal reaches the program that started them and not them;
// that program calls Stop, which returns when the process is gone. If the
// program is killed first, the kernel ends its servers with it. Several processes may
// start PostgreSQL on the same Dir at once (test binaries of many packages do): they
// share one server, which ends with the last of them, be it stopped or killed.
//
// These servers are for development and tests. Production brings its own.
package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	privateDirMode  = 0o700
	privateFileMode = 0o600
	publicDirMode   = 0o755
)

// ErrInUse is returned (wrapped) by [Remove], [StartNATS] and the other
// starters when a running process uses the directory in a way that cannot be
// shared.
var ErrInUse = errors.New("directory is in use by a running server")

// Remove deletes dir with everything servers or [Ensure] kept in it, including
// what had to be placed outside of it. It deletes nothing and returns
// [ErrInUse] while a process that started a server on dir is alive and has not
// stopped it. A dir that does not exist is no error.
func Remove(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("remove server directory: %w", err)
	}
	for _, name := range []string{postgresName, redisName, natsName} {
		users, err := tryLock(filepath.Join(dir, name+usersSuffix), 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		defer users.Close()
	}
	outside := []string{placedOutside(dir)}
	if os.Geteuid() == 0 { // nobody else has programs placed outside
		outside = append(outside, outsideHome(dir, programsKind))
	}
	for _, path := range outside {
		if path == "" {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what %s has elsewhere: %w", dir, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove server directory: %w", err)
	}
	return nil
}

// ownDir makes dir absolute and creates it. Root's directories are readable
// by all because the user PostgreSQL runs as has to pass through them; what
// is secret inside has its own mode.
func ownDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("no directory given for the server")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	mode := os.FileMode(privateDirMode)
	if os.Geteuid() == 0 {
		mode = publicDirMode
	}
	return dir, os.MkdirAll(dir, mode)
}
