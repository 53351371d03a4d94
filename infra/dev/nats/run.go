package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// A cluster's servers talk on one port at each address. They notice after 3 s that another
// one is silent; the server's own default is a minute.
const (
	clusterPort     = 6222
	clusterPing     = time.Second
	clusterPingsOut = 2
)

func (n *Server) start(ctx context.Context) (err error) {
	if n.password == "" {
		n.password, err = home.Password(n.dir)
	}
	if err != nil {
		return err
	}
	if n.inUse, err = proc.TryLock(filepath.Join(n.dir, name+proc.UsersSuffix)); err != nil {
		return err
	}
	n.port, err = proc.OnFreePort(n.o.Port, filepath.Join(n.dir, name+".port"), func(port int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return n.run(port)
	})
	if err != nil {
		n.inUse.Close()
	}
	return err
}

// run starts the server and checks that it listens.
func (n *Server) run(port int) error {
	users := []*server.User{{Username: owner, Password: n.password}}
	for user, rights := range n.o.Users {
		publish, subscribe := rights.NATS(user)
		users = append(users, &server.User{Username: user, Password: n.password, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
		}})
	}
	options := &server.Options{
		ServerName: "miniserver",
		Host:       n.o.Host, Port: port,
		Users:     users,
		JetStream: true, StoreDir: n.dir, DisableJetStreamBanner: true,
		JetStreamMaxMemory: memoryBytes, JetStreamMaxStore: storeBytes,
		NoSigs: true,
	}
	if len(n.o.Peers) > 0 {
		options.ServerName += "-" + n.o.Host
		options.Cluster = server.ClusterOpts{Name: "miniserver", Host: n.o.Host, Port: clusterPort, NoAdvertise: true, PingInterval: clusterPing, MaxPingsOut: clusterPingsOut}
		for _, peer := range n.o.Peers {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort(peer, strconv.Itoa(clusterPort))})
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	said := &complaints{to: cmp.Or[io.Writer](n.o.Complain, io.Discard)}
	s.SetLoggerV2(said, false, false, false)
	s.Start() // returns once it listens, or has given up
	if complaint := said.first(); complaint != nil {
		err = complaint
	} else if !s.ReadyForConnections(readyTimeout) {
		err = proc.ErrNotReady
	}
	if err == nil {
		n.server = s
		return nil
	}
	return errors.Join(err, shutdown(s))
}

// shutdown ends s and waits until it is down.
func shutdown(s *server.Server) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Shutdown()
		s.WaitForShutdown()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("not down after %s", stopTimeout)
	}
}

// complaints drops everything that a server logs, except its reasons for not starting and,
// for those who want them, its warnings.
type complaints struct {
	to io.Writer

	mu    sync.Mutex
	fatal error
}

func (l *complaints) first() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// Fatalf keeps the first reason; the server continues as well as it can.
func (l *complaints) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, arg := range args {
		if cause, ok := arg.(error); ok && errors.Is(cause, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: %w", proc.ErrPortTaken, cause)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = err
	}
}

func (l *complaints) Warnf(format string, args ...any) { l.Errorf(format, args...) }

func (l *complaints) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.to, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func (*complaints) Noticef(string, ...any) {}
func (*complaints) Debugf(string, ...any)  {}
func (*complaints) Tracef(string, ...any)  {}
