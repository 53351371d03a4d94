package system

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Settings are those that the system was started with.
func (s *System) Settings() settings.Settings { return s.Runtime.Settings }

// invoke sends a request to a function without the gateway: the request's host is its
// name.
func (s *System) invoke(r *http.Request) (*http.Response, error) {
	return s.Runtime.Invoke.RoundTrip(r)
}

// Gateway returns the gateway of a system in one process, without a server.
func (s *System) Gateway() http.Handler {
	return s.Runtime.Here[functions.GatewayName]
}

// Ready returns why a new process is not ready for a function, nil if it is.
func (s *System) Ready(function string) error {
	s.T.Helper()
	f, err := functions.Named(function)
	kit.Must(s.T, err)
	runtime := fn.NewRuntime(s.Settings(), s.Runtime.Log, functions.All)
	defer runtime.Close()
	runtime.Invoke = runtime.Here
	kit.Must(s.T, runtime.Host(f))
	return runtime.Ready(s.T.Context())
}

// BehindServe serves the system as a process does, with the limits of process.Serve.
func (s *System) BehindServe() (address string) {
	s.T.Helper()
	listener := kit.Listen(s.T)
	s.serve(listener, s.Runtime, s.Gateway())
	return listener.Addr().String()
}

// Another starts the same system in one more process; change alters its settings.
func (s *System) Another(change ...func(*settings.Settings)) *System {
	s.T.Helper()
	own := s.Settings()
	for _, do := range change {
		do(&own)
	}
	runtime := fn.NewRuntime(own, s.Runtime.Log, functions.All)
	handler, err := functions.Together(runtime)
	kit.Must(s.T, err)
	listener := kit.Listen(s.T)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	s.T.Cleanup(func() { server.Close(); runtime.Close() })
	other := *s
	other.Runtime, other.URL = runtime, "http://"+listener.Addr().String()
	return &other
}

// serve serves handler as a process does, and returns a function that does what SIGTERM
// would.
func (s *System) serve(listener net.Listener, runtime *fn.Runtime, handler http.Handler) (stop func() error) {
	s.T.Helper()
	aging := &agingListener{Listener: listener, open: map[*agingConn]bool{}}
	s.served = append(s.served, aging)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- process.Serve(ctx, aging, handler, runtime.Settings, runtime.StopClaiming) }()
	stop = sync.OnceValue(func() error { cancel(); return <-served })
	s.T.Cleanup(func() {
		if err := stop(); err != nil {
			s.T.Logf("a process ended with: %v", err)
		}
	})
	return stop
}

// Served serves the system with process.Serve instead of the test's own server.
func (s *System) Served() (stop func() error) {
	s.T.Helper()
	listener := kit.Listen(s.T)
	s.URL = "http://" + listener.Addr().String()
	return s.serve(listener, s.Runtime, s.Gateway())
}

// Apart puts the gateway into a process of its own, and each of the other
// functions behind a server of its own: all reach each other over HTTP only.
func (s *System) Apart() (stopGateway, stopStream func() error) {
	s.T.Helper()
	settings := s.Settings()
	listeners := map[string]net.Listener{}
	var where []string
	for _, f := range functions.All {
		listeners[f.Name] = kit.Listen(s.T)
		where = append(where, f.Name+"=http://"+listeners[f.Name].Addr().String())
	}
	settings.FunctionURL = strings.Join(where, ",")
	stops := map[string]func() error{}
	behind := fn.NewRuntime(settings, s.Runtime.Log, functions.All)
	front := fn.NewRuntime(settings, s.Runtime.Log, functions.All)
	var err error
	for _, runtime := range []*fn.Runtime{behind, front} {
		runtime.Invoke, err = transport.Remote(settings.FunctionURL)
		kit.Must(s.T, err)
		s.T.Cleanup(runtime.Close)
	}
	for _, f := range functions.All {
		runtime := behind
		if f.Public {
			runtime = front
		}
		kit.Must(s.T, runtime.Host(f))
		stops[f.Name] = s.serve(listeners[f.Name], runtime, runtime.Here[f.Name])
	}
	s.Runtime = behind
	s.URL = "http://" + listeners[functions.GatewayName].Addr().String()
	return stops[functions.GatewayName], stops["stream"]
}
