package conformance

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

// inProcess runs all functions in the test's process.
type inProcess struct {
	*Served
	runtime *fn.Runtime
}

// StartLocal is the Start of an adapter without a process.
func StartLocal(t testing.TB, environment map[string]string, _ ...string) Instance {
	t.Helper()
	loaded, err := settings.LoadFrom(environment)
	kit.Must(t, err)
	rt := fn.NewRuntime(loaded, slog.New(slog.DiscardHandler), functions.All)
	handler, err := functions.Together(rt)
	kit.Must(t, err)
	listener := kit.Listen(t)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(func() {
		server.Close()
		rt.Close()
	})
	address := map[string]string{functions.GatewayName: listener.Addr().(*net.TCPAddr).String()}
	return &inProcess{&Served{Paths: OwnPaths, Front: functions.GatewayName, Address: address}, rt}
}

// Tick takes the way of the process's own schedule.
func (i *inProcess) Tick(function string) error {
	request, err := http.NewRequest(http.MethodPost, "http://"+function+tick.Path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := i.runtime.Invoke.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func (i *inProcess) Terminate() {}

func (i *inProcess) Wait(time.Duration) error { return nil }
