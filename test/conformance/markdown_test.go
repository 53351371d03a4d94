//go:build conformance

package conformance_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/miniserversystem/miniserver/test/conformance"
)

// The results of the runs before it, as Markdown: make test-conformance ends with it.
func TestMarkdown(t *testing.T) {
	dir := os.Getenv(conformance.ResultsVariable)
	if dir == "" {
		t.Skip("no results of other runs: " + conformance.ResultsVariable + " is not set")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := conformance.Table(dir)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(text)
}
