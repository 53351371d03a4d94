package api_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The registry lists exactly the functions that a function's code wakes: a missing one
// would not be woken, and a needless one opens the network for nothing.
func TestWakesAreListed(t *testing.T) {
	t.Parallel()
	scheduled := map[string]bool{}
	for _, f := range functions.All {
		scheduled[f.Name] = f.Schedule > 0
	}
	for _, f := range functions.All {
		found := map[string]bool{}
		names(t, f.Name, func(name string) {
			if scheduled[name] && (name != f.Name || slices.Contains(f.Wakes, name)) {
				found[name] = true
			}
		})
		for _, name := range f.Wakes {
			if !found[name] {
				t.Errorf("the registry says that %s wakes %s, but its code does not", f.Name, name)
			}
			delete(found, name)
		}
		for name := range found {
			t.Errorf("%s names %s, but the registry does not say that it wakes it", f.Name, name)
		}
		if !slices.Equal(slices.Compact(slices.Sorted(slices.Values(f.Wakes))), slices.Sorted(slices.Values(f.Wakes))) {
			t.Errorf("%s lists a function twice: %v", f.Name, f.Wakes)
		}
	}
}

// names calls each for every string in the code of a function and of the internal
// packages that it imports.
func names(t *testing.T, folder string, each func(string)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "functions", folder, "*.go"))
	kit.Must(t, err)
	if len(files) == 0 {
		t.Fatalf("there is no code in functions/%s", folder)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
		kit.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != gotoken.STRING {
				return true
			}
			value, err := strconv.Unquote(literal.Value)
			kit.Must(t, err)
			each(value)
			if _, internal, ok := strings.Cut(value, "/functions/internal/"); ok {
				names(t, filepath.Join("internal", internal), each)
			}
			return true
		})
	}
}
