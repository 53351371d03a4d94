// Command serve runs a function as a container does: it listens on PORT of all
// interfaces (platforms probe the pod's address), and drains on SIGTERM.
//
// serve ready asks the one that runs whether it is ready, for health checks by a
// program in the container: status 0, or 1 and one line that says why not.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	function "github.com/miniserversystem/miniserver"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// gcPercent trades memory for speed: the live heap is about 10 MiB, and a function
// may use 64. GOGC overrides it.
const gcPercent = 200

func main() {
	switch {
	case len(os.Args) == 1:
	case len(os.Args) == 2 && os.Args[1] == "ready":
		if err := ready(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "miniserver:", err)
			os.Exit(1)
		}
		return
	default:
		fmt.Fprintln(os.Stderr, "miniserver: serve takes no arguments, or: ready")
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// New ends the process with one clear line when something is missing.
	f := function.New()
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "miniserver:", err)
		os.Exit(1)
	}
}

func run(f *function.Function) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := settings.Load()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(s.Port))
	if err != nil {
		return fmt.Errorf("cannot listen on PORT %d: %w", s.Port, err)
	}
	if err := f.Start(ctx, nil); err != nil {
		return err
	}
	err = process.Serve(ctx, listener, http.HandlerFunc(f.Handle), s, f.StopClaiming)
	if stopErr := f.Stop(context.WithoutCancel(ctx)); err == nil {
		err = stopErr
	}
	return err
}
