package conformance_test

import (
	"os"
	"testing"

	"github.com/miniserversystem/miniserver/test/conformance"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

func TestMain(m *testing.M) {
	code := kit.Main(m)
	program.Clean()
	os.Exit(code)
}

const noProcess = "it is in the process of the test"

// The handlers in the test's process, behind net/http.
func TestLocal(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Adapter{
		Name: "local", Start: conformance.StartLocal, Ticked: true,
		Without: map[string]string{"drain on SIGTERM": noProcess, "SIGTERM ends streams": noProcess, "unknown FUNCTION": noProcess, "malformed setting": noProcess},
	})
}

// A container's program, with all functions in one process.
func TestServe(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.OneProcess("serve", program.Build(t, root(t), "./infra/miniserver")))
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := kit.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
