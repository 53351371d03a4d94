// Package home is where a server of development or of a test keeps what it owns: data,
// log, password, port. Starting again on the same directory finds the same data behind
// the same password and, when it is still free, the same port. Delete it with [Remove]
// to start from nothing.
//
// There is one exception to everything being in there: PostgreSQL refuses to run as
// root, so root runs it as another user, and when that user cannot reach the directory
// (a clone in /root, a test's temporary directory) the data goes to one under /var/tmp
// which the file "location" names.
package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Modes of files and directories.
const (
	PrivateDir  = 0o700
	PrivateFile = 0o600
	PublicDir   = 0o755
)

// Make makes dir absolute and creates it. Root's directories are readable by all
// because the user PostgreSQL runs as has to pass through them; what is secret inside
// has its own mode.
func Make(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("no directory given for the server")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	mode := os.FileMode(PrivateDir)
	if os.Geteuid() == 0 {
		mode = PublicDir
	}
	return dir, os.MkdirAll(dir, mode)
}

// Remove deletes dir with everything servers kept in it and programs that were unpacked
// there, including what had to be placed outside of it. It deletes nothing and returns
// [proc.ErrInUse] while a process that started a server on dir is alive and has not
// stopped it. A dir that does not exist is no error.
func Remove(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("remove server directory: %w", err)
	}
	entries, _ := os.ReadDir(dir) // what is not there is not in use
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), proc.UsersSuffix) {
			continue
		}
		users, err := proc.TryLock(filepath.Join(dir, entry.Name()))
		if err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		defer users.Close()
	}
	outside := []string{placedOutside(dir), programsOutside(dir)}
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

// programsOutside returns the directory of dir's programs if servers cannot reach dir, or
// "".
func programsOutside(dir string) string {
	if os.Geteuid() != 0 { // only root has programs outside
		return ""
	}
	return outside(dir, programsKind)
}

// Repository returns the root of the repository that the working directory is in, found
// by go.mod.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
