package home

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
	// programsKind distinguishes unpacked programs from data in those names.
	programsKind = "deps-"

	locationFile = "location"
	// DataName is the name of the data in its directory.
	DataName = "data"

	execOther, execGroup, execOwner = 0o001, 0o010, 0o100
	writeOthers                     = 0o022
)

// Data returns the directory that is to hold the data of dir, under [DataName]: dir itself
// if the account reaches it, otherwise one under /var/tmp, which it creates
// and notes in dir/location.
func Data(dir string, a *Account) (string, error) {
	if a.Reaches(dir) && placedOutside(dir) == "" {
		return dir, nil
	}
	if _, err := os.Stat(filepath.Join(dir, DataName)); err == nil && !a.Reaches(dir) {
		return "", fmt.Errorf("the user PostgreSQL runs as (uid %d) cannot reach %s any more; "+
			"make every directory above it passable (chmod a+x)", a.uid, filepath.Join(dir, DataName))
	}
	home := outside(dir, "")
	if noted := placedOutside(dir); noted != "" && noted != home {
		return "", fmt.Errorf("%s was moved or copied here; its PostgreSQL data is in %s. "+
			"Move that to %s and correct %s, or delete %s to start with an empty database",
			dir, noted, home, filepath.Join(dir, locationFile), filepath.Join(dir, locationFile))
	}
	// Noted before it exists, so that Remove finds whatever we leave there.
	note := filepath.Join(dir, locationFile)
	if err := os.WriteFile(note, []byte(home+"\n"), PrivateFile); err != nil {
		return "", err
	}
	return home, claimOutside(home, a, PrivateDir)
}

// placedOutside returns the directory that dir/location names, or "".
func placedOutside(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, locationFile))
	home := strings.TrimSpace(string(b))
	if !strings.HasPrefix(home, filepath.Join(outsideParent, outsidePrefix)) || filepath.Clean(home) != home {
		return ""
	}
	return home
}

// outside returns the name of dir under /var/tmp.
func outside(dir, kind string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(outsideParent, outsidePrefix+kind+hex.EncodeToString(sum[:])[:outsideDigits])
}

// Outside returns the directory of dir's data when the account does not reach dir.
func Outside(dir string) string { return outside(dir, "") }

// Programs returns the directory to unpack programs in, creating it: dir, or, if the
// account does not reach that, one under /var/tmp.
func Programs(dir string, a *Account) (string, error) {
	dir, err := Make(dir)
	if err != nil || a.Reaches(dir) {
		return dir, err
	}
	dir = outside(dir, programsKind)
	return dir, claimOutside(dir, nil, PublicDir)
}

// claimOutside creates path for the account (nil: ourselves), or accepts one
// that is a directory of that account which nobody else may write to. Anybody
// may create names in /var/tmp, so anything else there is refused.
func claimOutside(path string, a *Account, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, want := info.Sys().(*syscall.Stat_t).Uid, uint32(os.Geteuid())
	if owner == want && info.IsDir() { // created just now, or interrupted here
		if err := a.Own(path); err != nil {
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
