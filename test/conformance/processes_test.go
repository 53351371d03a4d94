//go:build conformance

package conformance_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/test/conformance"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// A container's program, with one function in each process.
func TestProcesses(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Processes("processes", program.Build(t, root(t), "./infra/miniserver"), conformance.OwnPaths, nil))
}
