package home

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Account is the user under which servers run that refuse to run as root.
type Account struct {
	Name     string
	uid, gid uint32
}

// ServerAccount returns the unprivileged user for PostgreSQL, or nil when we are not
// root: it then runs as ourselves.
func ServerAccount() (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			return &Account{name, uint32(uid), uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as; " +
		"run this as an ordinary user")
}

// Credential makes a process run as the account; nil leaves it as we are.
func (a *Account) Credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{a.gid}}
}

// Own gives the file or directory at path to the account.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// Reaches reports whether the account may pass through path and everything above it,
// judging by the mode bits.
func (a *Account) Reaches(path string) bool {
	if a == nil {
		return true
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		owner, need := info.Sys().(*syscall.Stat_t), fs.FileMode(execOther)
		switch {
		case owner.Uid == a.uid:
			need = execOwner
		case owner.Gid == a.gid:
			need = execGroup
		}
		if info.Mode()&need == 0 {
			return false
		}
		if path == "/" {
			return true
		}
	}
}
