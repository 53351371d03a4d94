package check

import (
	"go/build"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	koPrefix = "ko://"
	module   = "github.com/miniserversystem/miniserver"
	// root is the repository's, from this package's tests.
	root = "../.."
	// resolved stands for the digest that ko, or whoever deploys, inserts.
	resolved = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

var pinned = regexp.MustCompile(`(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]*)$`)

// resolveImages does what `ko resolve` does: it replaces the commands that images name by
// images. A name that is not a command of ours stays unchanged and is a fault.
func resolveImages(b *Build, p *problems) {
	for _, d := range b.Documents {
		walk(d.Raw, func(key, value string) string {
			if key != "image" {
				return value
			}
			path, ko := strings.CutPrefix(value, koPrefix)
			if !ko {
				if !pinned.MatchString(value) || strings.HasSuffix(value, ":latest") {
					p.add("%s: the image %q has neither a version nor a digest", d, value)
				}
				return value
			}
			inside, ours := strings.CutPrefix(path, module+"/")
			found, err := build.ImportDir(filepath.Join(root, inside), 0)
			if !ours || err != nil || !found.IsCommand() {
				p.add("%s: %s is no command of this repository", d, value)
				return value
			}
			return "registry.example.com/" + filepath.Base(path) + resolved
		})
	}
}

// walk replaces every text in a document with replace's result for its name and value.
func walk(at any, replace func(key, value string) string) {
	switch node := at.(type) {
	case map[string]any:
		for key, value := range node {
			if text, ok := value.(string); ok {
				node[key] = replace(key, text)
			} else {
				walk(value, replace)
			}
		}
	case []any:
		for _, value := range node {
			walk(value, replace)
		}
	}
}
