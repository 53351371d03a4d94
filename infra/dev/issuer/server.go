package issuer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	readTimeout = 10 * time.Second
	// writeTimeout leaves room for a logout that waits for the back channel.
	writeTimeout = 30 * time.Second
	idleTimeout  = time.Minute
	stopTimeout  = 5 * time.Second
)

// Server is an issuer that listens.
type Server struct {
	*Issuer
	http   *http.Server
	served chan error
	stop   func() error
}

// Start serves an issuer on a loopback listener, which it owns from then on,
// until the context ends or Stop is called. An empty Options.URL becomes the
// listener's address.
func Start(ctx context.Context, listener net.Listener, o Options) (*Server, error) {
	server, err := newServer(listener, o)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	go func() { server.served <- server.http.Serve(listener) }()
	server.stop = sync.OnceValue(server.shutdown)
	release := context.AfterFunc(ctx, func() { _ = server.stop() })
	server.http.RegisterOnShutdown(func() { release() })
	return server, nil
}

func newServer(listener net.Listener, o Options) (*Server, error) {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return nil, fmt.Errorf("issuer: %s is not a loopback address, and the passwords of this issuer are published",
			listener.Addr())
	}
	if o.URL == "" {
		o.URL = "http://" + address.String()
	}
	o = o.withDefaults()
	made, err := New(o)
	if err != nil {
		return nil, err
	}
	return &Server{
		Issuer: made,
		served: make(chan error, 1),
		http: &http.Server{
			Handler:      made.Handler(),
			ReadTimeout:  readTimeout,
			WriteTimeout: writeTimeout,
			IdleTimeout:  idleTimeout,
			ErrorLog:     slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		},
	}, nil
}

// Stop ends the server and waits for the requests it is answering. It can be
// called more than once.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
