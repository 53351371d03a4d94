// Package model_test has Spin, a model checker, walk through every order in which the steps
// of the lease and of a transfer's key can happen, while processes die at any of them. The
// models are *.pml, in Promela.
package model_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Each model keeps its promises, and breaks one where a rule is taken out of it.
func TestModels(t *testing.T) {
	t.Parallel()
	spin := newSpin(t)
	for model, without := range map[string]map[string]string{
		"lease": {
			"ANY_TOKEN":   "rows[r].holder==claim", // a late worker changes what another holds
			"COUNT_ALL":   "rows[r].tries>=2",      // a row fails because of its neighbour
			"ALL_AT_ONCE": "acceptance cycle",      // the row that kills never ends
		},
		"transfer": {
			"UNLOCKED":    "told==",          // the watchdog answers FAILED, and then the money moves
			"ANY_ATTEMPT": "moved[(me/2)]==", // a late TX1 takes the key of another request
			"NO_WATCHDOG": "key!=",           // a key whose process died stays in progress
		},
	} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			if found := spin.check(t, model, ""); !strings.Contains(found, "errors: 0") {
				t.Errorf("a promise is broken:\n%s", found)
			} else if unreached := regexp.MustCompile(`(?m)^\t.*state \d+, "[^-].*`).FindString(found); unreached != "" {
				t.Errorf("a step of the model never happens: %s", unreached)
			}
			for rule, broken := range without {
				if found := spin.check(t, model, rule); !strings.Contains(found, "errors: 1") || !strings.Contains(found, broken) {
					t.Errorf("with %s, want an error with %q:\n%s", rule, broken, found)
				}
			}
		})
	}
}

// spin is the checker.
type spin struct{ program, compiler, root string }

func newSpin(t *testing.T) spin {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	tree, _, err := apt.Unpacked(t.Context(), filepath.Join(root, ".local", "deps"), "spin", os.Stderr, "spin")
	kit.Must(t, err)
	compiler, err := exec.CommandContext(t.Context(), "go", "env", "CC").Output()
	kit.Must(t, err)
	return spin{filepath.Join(tree, "usr", "bin", "spin"), strings.TrimSpace(string(compiler)), filepath.Join(root, "test", "model")}
}

// check makes a checker of a model, with a name defined if it is not empty, and returns what
// it prints.
func (s spin) check(t *testing.T, model, define string) string {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, arguments ...string) string {
		command := proc.Command(t.Context(), name, arguments...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
		}
		return string(out)
	}
	arguments := []string{"-a", filepath.Join(s.root, model+".pml")}
	if define != "" {
		arguments = append([]string{"-D" + define}, arguments...)
	}
	run(s.program, arguments...)
	run(s.compiler, "-O2", "-o", "pan", "pan.c")
	arguments = []string{"-b", "-m100000"} // steps of one order, and with more it is an error
	if model == "lease" {                  // which promises that something happens
		arguments = append(arguments, "-a", "-f")
	}
	found := run("./pan", arguments...)
	t.Logf("%s %s: %s", model, define, regexp.MustCompile(`(?s)State-vector.*? stored`).FindString(found))
	return found
}
