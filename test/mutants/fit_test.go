package mutants_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// enough mutants of a promise: one may be noticed by luck.
const enough = 3

// source returns the text of the mutant's file, with the bug in it.
func (m mutant) source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.part); n != 1 || m.part == m.instead {
		return "", fmt.Errorf("%s has %q %d times, want once, and something else instead", m.file, m.part, n)
	}
	return strings.Replace(string(text), m.part, m.instead, 1), nil
}

// Each promise has its mutants, and they fit the source and the tests as they are now:
// make mutants, which plants them, takes long.
func TestMutantsFit(t *testing.T) {
	t.Parallel()
	root, err := kit.Root()
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tests := map[string]string{} // by folder
	for _, p := range promises {
		if len(p.mutants) < enough {
			t.Errorf("%q has %d mutants, want %d", p.text, len(p.mutants), enough)
		}
		for _, m := range p.mutants {
			if _, err := m.source(root); err != nil {
				t.Errorf("%q: %v", m.bug, err)
			}
			folder, names, _ := strings.Cut(m.proof, " ")
			if tests[folder] == "" {
				files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
				if err != nil {
					t.Fatal(err)
				}
				for _, file := range files {
					text, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					for _, found := range function.FindAllStringSubmatch(string(text), -1) {
						tests[folder] += found[1] + " "
					}
				}
			}
			for name := range strings.SplitSeq(names, "|") {
				if !strings.Contains(" "+tests[folder], " "+name+" ") {
					t.Errorf("%q is to be noticed by %s, which %s does not have", m.bug, name, folder)
				}
			}
		}
	}
}
