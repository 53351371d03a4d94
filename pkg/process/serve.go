package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

const (
	maxHeaderBytes = 16 << 10
	readTimeout    = 15 * time.Second
	writeTimeout   = 40 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Serve answers on listener until ctx ends, then takes no new requests, calls ending,
// lets running requests end within SHUTDOWN_GRACE, and returns.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, s settings.Settings, ending func()) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.ReadHeaderTimeout,
		ReadTimeout:       readTimeout,
		// Long enough for a tick, which answers only when it is done.
		WriteTimeout:   max(writeTimeout, s.TickBudget+writeTimeout/2),
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ShutdownGrace)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(fmt.Errorf("requests were still running after SHUTDOWN_GRACE: %w", err), server.Close())
	}
	<-served
	return err
}
