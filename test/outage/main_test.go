package outage_test

import (
	"net"
	"os"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: names.dial}
	os.Exit(kit.Main(m))
}
