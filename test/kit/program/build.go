package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildWithin bounds one go build with an empty cache.
const buildWithin = 10 * time.Minute

// builds are the programs that were built, by folder, package and flags.
var builds sync.Map

type build struct {
	once sync.Once
	path string
	err  error
}

// Build builds a main package, once for all tests of a process, and
// returns the binary's path. dir is the root of the package's module.
func Build(t testing.TB, dir, main string, flags ...string) string {
	t.Helper()
	made, _ := builds.LoadOrStore(dir+" "+main+" "+strings.Join(flags, " "), &build{})
	b := made.(*build)
	b.once.Do(func() { b.err = b.make(dir, main, flags) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func (b *build) make(dir, main string, flags []string) error {
	out, err := os.MkdirTemp("", "program-")
	if err != nil {
		return err
	}
	b.path = filepath.Join(out, "program")
	ctx, cancel := context.WithTimeout(context.Background(), buildWithin)
	defer cancel()
	arguments := append([]string{"build", "-ldflags=-s -w", "-o", b.path}, flags...)
	command := exec.CommandContext(ctx, "go", append(arguments, main)...)
	command.Dir, command.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", main, err, said)
	}
	return nil
}

// Clean removes everything that Build built. TestMain calls it last.
func Clean() {
	builds.Range(func(_, made any) bool {
		if path := made.(*build).path; path != "" {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		return true
	})
}
