package dev

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// outsideParent is where root puts what another user must reach; /tmp
	// would lose a database at the next boot.
	outsideParent = "/var/tmp"
	outsidePrefix = "miniserver-"
	outsideDigits = 8
	// programsKind tells unpacked programs from data in those names.
	programsKind = "deps-"

	locationFile = "location"
	dataName     = "data"

	execOther, execGroup, execOwner = 0o001, 0o010, 0o100
	execAny                         = execOther | execGroup | execOwner
	writeOthers                     = 0o022
)

// dataHome returns the directory that is to hold the data of dir: dir itself
// if the account reaches it, otherwise one under /var/tmp, which it creates
// and notes in dir/location.
func dataHome(dir string, a *account) (string, error) {
	if a.reaches(dir) && placedOutside(dir) == "" {
		return dir, nil
	}
	if _, err := os.Stat(filepath.Join(dir, dataName)); err == nil && !a.reaches(dir) {
		return "", fmt.Errorf("the user PostgreSQL runs as (uid %d) cannot reach %s any more; "+
			"make every directory above it passable (chmod a+x)", a.uid, filepath.Join(dir, dataName))
	}
	home := outsideHome(dir, "")
	if noted := placedOutside(dir); noted != "" && noted != home {
		return "", fmt.Errorf("%s was moved or copied here; its PostgreSQL data is in %s. "+
			"Move that to %s and correct %s, or delete %s to start with an empty database",
			dir, noted, home, filepath.Join(dir, locationFile), filepath.Join(dir, locationFile))
	}
	// Noted before it exists, so that Remove finds whatever we leave there.
	note := filepath.Join(dir, locationFile)
	if err := os.WriteFile(note, []byte(home+"\n"), privateFileMode); err != nil {
		return "", err
	}
	return home, claimOutside(home, a, privateDirMode)
}

// placedOutside returns the directory dir/location names, or "".
func placedOutside(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, locationFile))
	home := strings.TrimSpace(string(b))
	if !strings.HasPrefix(home, filepath.Join(outsideParent, outsidePrefix)) || filepath.Clean(home) != home {
		return ""
	}
	return home
}

// outsideHome is the name dir gets under /var/tmp.
func outsideHome(dir, kind string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(outsideParent, outsidePrefix+kind+hex.EncodeToString(sum[:])[:outsideDigits])
}

// claimOutside creates path for the account (nil: ourselves), or accepts one
// that is a directory of that account which nobody else may write to. Anybody
// may create names in /var/tmp, so anything else there is refused.
func claimOutside(path string, a *account, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, want := info.Sys().(*syscall.Stat_t).Uid, uint32(os.Geteuid())
	if owner == want && info.IsDir() { // created just now, or interrupted here
		if err := a.own(path); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
	if a != nil {
		want = a.uid
	}
	if !info.IsDir() || owner != want || info.Mode()&writeOthers != 0 {
		return fmt.Errorf("%s exists and is not a private directory of uid %d; remove it", path, want)
	}
	return nil
}
