//go:build conformance

package conformance_test

import (
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/conformance"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// The program that the func CLI builds.
func TestFuncGo(t *testing.T) {
	t.Parallel()
	a := conformance.OneProcess("func-go", program.Build(t, root(t)+"/test/conformance/funcgo", "."))
	a.Grace = 30 * time.Second // the middleware's own, which ignores SHUTDOWN_GRACE
	a.Without = map[string]string{
		"path that is not clean": "the middleware's own http.ServeMux redirects to the clean path (307) before the function is asked",
	}
	conformance.Run(t, a)
}
