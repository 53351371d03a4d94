package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"

	function "github.com/miniserversystem/miniserver"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// gcPercent trades memory for speed: the live heap is about 10 MiB, and a function
// may use 64. GOGC overrides it.
const gcPercent = 200

// serve runs a function, or all, as a container does: it listens on PORT of all
// interfaces (platforms probe the pod's address), and drains when ctx ends.
func serve(ctx context.Context, _ []string, _ io.Writer) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	s, err := settings.Load()
	if err != nil {
		return err
	}
	f, err := function.Load(s)
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
