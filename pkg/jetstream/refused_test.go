package jetstream_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/miniserversystem/miniserver/infra/dev"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
)

// doorman refuses everybody while closed.
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
	must(t, err)
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS did not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// The broker refuses our password for a while (a rotation, a restore): the
// client goes on trying, and is back without a restart of its process.
func TestReconnectsAfterItWasRefused(t *testing.T) {
	t.Parallel()
	port, err := dev.FreePort(0)
	must(t, err)
	dir, d := t.TempDir(), &doorman{}
	s := d.serve(t, dir, port)
	client := jetstream.New(s.ClientURL(), "test", limits)
	t.Cleanup(client.Close)
	p := jetstream.NewPublisher(client, event.EntitlementSubject)
	must(t, p.Publish(t.Context(), []event.Message{message("before")})[0])

	d.closed.Store(true)
	s.Shutdown()
	s.WaitForShutdown()
	d.serve(t, dir, port)
	eventually(t, "the client was refused twice", func() bool { return d.refused.Load() >= 2 })
	d.closed.Store(false)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := p.Publish(t.Context(), []event.Message{message("after")})[0]
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("5 s after it may come in again: %v", err)
		}
	}
}
