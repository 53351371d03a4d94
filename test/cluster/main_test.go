//go:build knative

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/miniserversystem/miniserver/test/cluster"
	"github.com/miniserversystem/miniserver/test/kit"
)

// servers is the module of the cluster's programs, from the root of the repository.
const servers = "test/cluster/servers"

// programs is the folder of the cluster's programs.
var programs = filepath.Join(".local", "bin", "tools", "knative")

func TestMain(m *testing.M) {
	// In the root, where kit keeps the servers that all tests share.
	err := os.Chdir(filepath.Join("..", ".."))
	if err == nil {
		programs, err = filepath.Abs(programs)
	}
	if err == nil {
		err = cluster.Build(context.Background(), servers, programs, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(kit.Main(m))
}
