package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// ResultsVariable names a folder that collects each adapter's results, for Table.
const ResultsVariable = "CONFORMANCE_RESULTS"

// outcome is a check's result: one of the fields is set.
type outcome struct {
	Saw     string `json:"saw,omitempty"`
	Without string `json:"without,omitempty"`
	Failed  bool   `json:"failed,omitempty"`
}

// results are one adapter's.
type results struct {
	Adapter  string             `json:"adapter"`
	Outcomes map[string]outcome `json:"outcomes"`
	mutex    sync.Mutex
}

// newResults logs the results at the end of t, and writes them to the folder.
func newResults(t *testing.T, adapter string) *results {
	r := &results{Adapter: adapter, Outcomes: map[string]outcome{}}
	t.Cleanup(func() {
		t.Logf("\n%s", table([]*results{r}))
		if dir := os.Getenv(ResultsVariable); dir != "" {
			kit.Must(t, r.write(dir))
		}
	})
	return r
}

func (r *results) put(check string, o outcome) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Outcomes[check] = o
}

func (r *results) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.ReplaceAll(r.Adapter, " ", "-")+".json"), text, 0o644)
}

// columns are the adapters in the table's order.
var columns = []string{"local", "serve", "processes", "func-go", "queue-proxy", "OpenFaaS", "Lambda"}

// Table returns the results in dir as a Markdown table of checks and adapters, with the
// checks that adapters omit below it.
func Table(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no results in %s", dir)
	}
	var all []*results
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		r := &results{}
		if err := json.Unmarshal(text, r); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *results) int {
		return slices.Index(columns, a.Adapter) - slices.Index(columns, b.Adapter)
	})
	return table(all), nil
}

func table(all []*results) string {
	var out strings.Builder
	var reasons []string
	missing := map[string][]string{} // checks by adapter and reason
	head, line := "| check |", "|---|"
	for _, r := range all {
		head += " " + r.Adapter + " |"
		line += "---|"
	}
	fmt.Fprintf(&out, "%s\n%s\n", head, line)
	for _, c := range checks {
		fmt.Fprintf(&out, "| %s |", c.name)
		for _, r := range all {
			o, ran := r.Outcomes[c.name]
			cell := o.Saw
			switch {
			case !ran:
				cell = "not run"
			case o.Failed:
				cell = "**failed**"
			case o.Without != "":
				cell = "–"
				why := r.Adapter + "\x00" + o.Without
				if missing[why] == nil {
					reasons = append(reasons, why)
				}
				missing[why] = append(missing[why], c.name)
			}
			fmt.Fprintf(&out, " %s |", cell)
		}
		out.WriteString("\n")
	}
	slices.Sort(reasons)
	for i, reason := range reasons {
		if i == 0 {
			out.WriteString("\n")
		}
		adapter, why, _ := strings.Cut(reason, "\x00")
		fmt.Fprintf(&out, "- %s is without %s: %s.\n", adapter, strings.Join(missing[reason], ", "), why)
	}
	return out.String()
}
