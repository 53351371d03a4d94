// Package history_test has clients use the system at once, records what each asked and
// was told, and when, and has a checker of linearizability judge the record: some order of
// the requests, each at one moment between its call and its answer, must explain every
// answer.
package history_test

import (
	"os"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
