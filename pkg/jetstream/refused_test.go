package jetstream_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
)

// doorman is NATS' authentication; it refuses every client while closed.
type doorman struct {
	closed  atomic.Bool
	refused atomic.Int32
}

func (d *doorman) Check(server.ClientAuthentication) bool {
	if d.closed.Load() {
		d.refused.Add(1)
		return false
	}
	return true
}

func (d *doorman) serve(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, CustomClientAuthentication: d,
	})
	kit.Must(t, err)
	s.Start()
	if !s.ReadyForConnections(kit.Patience) {
		t.Fatal("NATS did not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// The broker refuses the client's password for a while (a rotation, a restore). The client
// keeps trying, and reconnects without a restart of its process.
func TestReconnectsAfterItWasRefused(t *testing.T) {
	t.Parallel()
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	dir, d := t.TempDir(), &doorman{}
	s := d.serve(t, dir, port)
	client := jetstream.New(s.ClientURL(), "test", limits)
	t.Cleanup(client.Close)
	p := jetstream.NewPublisher(client, event.EntitlementSubject)
	kit.Must(t, p.Publish(t.Context(), []event.Message{message("before")})[0])

	d.closed.Store(true)
	s.Shutdown()
	s.WaitForShutdown()
	d.serve(t, dir, port)
	kit.Eventually(t, "the client was refused twice", func() bool { return d.refused.Load() >= 2 })
	d.closed.Store(false)
	kit.Within(t, 5*time.Second, "it is let in again", func() bool {
		return p.Publish(t.Context(), []event.Message{message("after")})[0] == nil
	})
}
