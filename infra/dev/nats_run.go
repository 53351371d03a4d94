package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func (n *NATS) start(ctx context.Context, port int) (err error) {
	if n.password, err = password(n.dir); err != nil {
		return err
	}
	if n.inUse, err = tryLock(filepath.Join(n.dir, natsName+usersSuffix), os.O_CREATE); err != nil {
		return err
	}
	n.port, err = onFreePort(port, filepath.Join(n.dir, natsName+".port"), func(port int) error {
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
func (n *NATS) run(port int) error {
	users := []*server.User{{Username: natsUser, Password: n.password}}
	for name, rights := range n.users {
		publish, subscribe := rights.NATS(name)
		users = append(users, &server.User{Username: name, Password: n.password, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
		}})
	}
	s, err := server.NewServer(&server.Options{
		ServerName: databaseName,
		Host:       loopback, Port: port,
		Users:     users,
		JetStream: true, StoreDir: n.dir, DisableJetStreamBanner: true,
		JetStreamMaxMemory: natsMemoryBytes, JetStreamMaxStore: natsStoreBytes,
		NoSigs: true,
	})
	if err != nil {
		return err
	}
	complaints := &natsLog{}
	s.SetLoggerV2(complaints, false, false, false)
	s.Start() // returns once it listens, or has given up
	if complaint := complaints.first(); complaint != nil {
		err = complaint
	} else if !s.ReadyForConnections(natsReadyTimeout) {
		err = errNotReady
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
	case <-time.After(natsStopTimeout):
		return fmt.Errorf("not down after %s", natsStopTimeout)
	}
}

// natsLog drops everything a server logs but the reasons it gives for not
// starting.
type natsLog struct {
	mu    sync.Mutex
	fatal error
}

func (l *natsLog) first() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// Fatalf keeps the first reason; the server goes on as well as it can.
func (l *natsLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, arg := range args {
		if cause, ok := arg.(error); ok && errors.Is(cause, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: %w", errPortTaken, cause)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = err
	}
}

func (*natsLog) Noticef(string, ...any) {}
func (*natsLog) Warnf(string, ...any)   {}
func (*natsLog) Errorf(string, ...any)  {}
func (*natsLog) Debugf(string, ...any)  {}
func (*natsLog) Tracef(string, ...any)  {}
