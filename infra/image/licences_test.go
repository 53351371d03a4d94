package image_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"

	"github.com/miniserversystem/miniserver/test/kit"
)

// allowed are licences that let anybody link a module into an Apache-2.0 program, and pass
// that on, with the licence's text beside it.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0"}

// most of a file must be the text of a known licence.
const most = 75 // percent

// Every module in the programs of a release has a licence that is allowed, and whose text
// goes with them.
func TestLicences(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(t.Context(), "infra/image/licences.sh").Output()
	kit.Must(t, err)
	known := map[string]bool{} // modules, by whether most of a file of theirs is a known text
	for _, section := range strings.Split(string(list), "\n== ")[1:] {
		head, text, _ := strings.Cut(section, "\n")
		module, _, _ := strings.Cut(head, " ")
		cover := licensecheck.Scan([]byte(text))
		known[module] = known[module] || cover.Percent >= most
		for _, match := range cover.Match {
			if !slices.Contains(allowed, match.ID) {
				t.Errorf("%s is under %s", head, match.ID)
			}
		}
	}
	modules, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./infra/miniserver", "./infra/lambda").Output()
	kit.Must(t, err)
	linked := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(modules)))))
	for _, module := range linked {
		if !known[module] {
			t.Errorf("%s has no licence that is known", module)
		}
	}
	if t.Logf("%d modules", len(linked)); len(linked) < 10 {
		t.Error("where are they?")
	}
}
