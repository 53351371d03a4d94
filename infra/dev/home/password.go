package home

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// PasswordFile is the file that the password is kept in.
	PasswordFile  = "password"
	passwordBytes = 16
)

// Password returns the password kept in dir, making one up the first time. It
// is hexadecimal, so it needs no escaping in a URL or a configuration file.
// Two processes asking at once get the same one.
func Password(dir string) (string, error) {
	path := filepath.Join(dir, PasswordFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := writePassword(path); err != nil {
			return "", fmt.Errorf("keep a password in %s: %w", dir, err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fmt.Errorf("read the server's password: %w", err)
	}
	s := strings.TrimSpace(string(b))
	if raw, err := hex.DecodeString(s); err != nil || len(raw) != passwordBytes {
		return "", fmt.Errorf("%s is damaged; delete %s to start with empty servers", path, dir)
	}
	return s, nil
}

// writePassword creates path whole or not at all, and leaves one that another
// process created meanwhile.
func writePassword(path string) error {
	var raw [passwordBytes]byte
	rand.Read(raw[:])                                               // never fails, see crypto/rand
	tmp, err := os.CreateTemp(filepath.Dir(path), PasswordFile+"-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(hex.EncodeToString(raw[:]) + "\n")
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
