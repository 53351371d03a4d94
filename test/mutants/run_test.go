//go:build mutants

package mutants_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// within bounds the tests of one mutant, which may hang; building them is not counted.
const within = 4 * time.Minute

var (
	failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	hung   = regexp.MustCompile(`(?m)^panic: test timed out`)
	passed = regexp.MustCompile(`(?m)^--- PASS: `)
)

// TestMutants plants each bug alone, and runs the tests that must notice it. They pass
// without any, which is tried first.
func TestMutants(t *testing.T) {
	only, err := regexp.Compile(os.Getenv("MUTANTS"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := kit.Root()
	if err != nil {
		t.Fatal(err)
	}
	healthy := map[string]bool{} // proofs
	var table strings.Builder
	planted, noticed := 0, 0
	for _, p := range promises {
		for _, m := range p.mutants {
			if !only.MatchString(p.text + ": " + m.bug) {
				continue
			}
			if _, known := healthy[m.proof]; !known {
				output, err := m.test(t.Context(), root, nil)
				healthy[m.proof] = err == nil && passed.MatchString(output)
				if !healthy[m.proof] {
					t.Errorf("without any bug, %s: %v\n%s", m.proof, err, output)
				}
			}
			if !healthy[m.proof] {
				continue
			}
			planted++
			began := time.Now()
			by := m.noticedBy(t, root)
			if by != "" {
				noticed++
			} else {
				by = "NOBODY"
			}
			t.Logf("%d: %s: %s (%.0f s)", planted, m.bug, by, time.Since(began).Seconds())
			fmt.Fprintf(&table, "| %s | %s | %s |\n", p.text, m.bug, by)
		}
	}
	t.Logf("%d of %d mutants are noticed\n\n| promise | planted | noticed by |\n|---|---|---|\n%s", noticed, planted, &table)
	if noticed < planted || planted == 0 {
		t.Errorf("%d mutants live", planted-noticed)
	}
}

// noticedBy returns which tests fail while the mutant lives, or "".
func (m mutant) noticedBy(t *testing.T, root string) string {
	t.Helper()
	text, err := m.source(root)
	if err != nil {
		t.Error(err)
		return ""
	}
	folder := t.TempDir()
	replaced := filepath.Join(folder, "mutant"+filepath.Ext(m.file))
	if err := os.WriteFile(replaced, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): replaced}})
	if err != nil {
		t.Fatal(err)
	}
	described := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(described, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := m.test(t.Context(), root, []string{"GOFLAGS=-overlay=" + described})
	names := map[string]bool{}
	var list []string
	for _, match := range failed.FindAllStringSubmatch(output, -1) {
		if !names[match[1]] {
			names[match[1]] = true
			list = append(list, match[1])
		}
	}
	switch {
	case len(list) > 0:
		return strings.Join(list, ", ")
	case hung.MatchString(output):
		return "a test that hangs"
	case err != nil: // it does not compile, say
		t.Errorf("%q was not tried: %v\n%s", m.bug, err, output)
	}
	return ""
}

// test runs the proof in an environment of its own, in which programs that tests build get
// the bug, too.
func (m mutant) test(ctx context.Context, root string, environment []string) (output string, err error) {
	folder, names, _ := strings.Cut(m.proof, " ")
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-v", "-timeout", within.String(),
		"-run", "^("+names+")$", "./"+folder)
	command.Dir, command.Env = root, append(os.Environ(), environment...)
	said, err := command.CombinedOutput()
	return string(said), err
}
