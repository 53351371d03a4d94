package telemetry_test

import (
	"os"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
