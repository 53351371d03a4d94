package dev

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/miniserversystem/miniserver/pkg/rights"
)

const (
	natsName = "nats"
	natsUser = "miniserver"

	natsReadyTimeout = 10 * time.Second
	natsStopTimeout  = 10 * time.Second

	natsMemoryBytes = 256 << 20
	natsStoreBytes  = 8 << 30
)

// NATSOptions say where and how to run NATS.
type NATSOptions struct {
	// Dir holds the JetStream store and is created if missing.
	Dir string
	// Port to listen on if it is free; 0 for the one used last time, or any.
	Port int
	// Users may do what their rights say and no more, beside the one of [NATS.URL], who
	// may do everything. They have its password.
	Users map[string]rights.Rights
}

// NATS is a NATS server with JetStream inside this process.
type NATS struct {
	dir      string
	users    map[string]rights.Rights
	password string
	port     int
	inUse    *os.File

	stopping sync.Mutex
	server   *server.Server // nil once stopped
}

// StartNATS returns a NATS server, ready for connections, whose streams are
// kept in files in Dir (8 GiB at most, and 256 MiB in memory). It handles no
// signals and prints nothing. A Dir serves one NATS at a time: a second one gets
// [ErrInUse]. ctx bounds the start only.
func StartNATS(ctx context.Context, o NATSOptions) (*NATS, error) {
	dir, err := ownDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	n := &NATS{dir: dir, users: o.Users}
	if err := n.start(ctx, o.Port); err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", dir, err)
	}
	return n, nil
}

// URL returns the connection string, password included.
func (n *NATS) URL() string { return n.URLAs(natsUser) }

// URLAs returns the connection string of one of the Users.
func (n *NATS) URLAs(user string) string {
	return fmt.Sprintf("nats://%s:%s@%s", user, n.password, hostPort(n.port))
}

// Stop closes all connections and the store, and returns when that is done,
// with an error if it takes longer than 10 s. Calling it again does nothing.
func (n *NATS) Stop() error {
	n.stopping.Lock()
	defer n.stopping.Unlock()
	if n.server == nil {
		return nil
	}
	if err := shutdown(n.server); err != nil {
		return fmt.Errorf("stop NATS in %s: %w", n.dir, err)
	}
	n.server = nil
	return n.inUse.Close()
}
