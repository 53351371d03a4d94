package problem_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Codes explains every code that the source uses, and no other.
func TestCodesAreExplained(t *testing.T) {
	t.Parallel()
	made := map[string]bool{}
	pattern := regexp.MustCompile(`(?:fault\.New\([\w.]+, |problem\.New\([\w.]+, |\bNew\([\w.]+, |Code: |http\.Status\w+:\s+\{)"([a-z_]+)"`)
	for _, root := range []string{"..", "../../functions"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || entry.Name() == "codes.go" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range pattern.FindAllSubmatch(text, -1) {
				made[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range problem.Codes {
		if !made[code.Code] {
			t.Errorf("%s is explained in Codes, but never used", code.Code)
		}
		delete(made, code.Code)
	}
	for code := range made {
		t.Errorf("%s is used, but not explained in Codes", code)
	}
}
