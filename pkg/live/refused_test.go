package live_test

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
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

func (d *doorman) serve(t *testing.T, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, CustomClientAuthentication: d})
	kit.Must(t, err)
	s.Start()
	if !s.ReadyForConnections(kit.Patience) {
		t.Fatal("NATS did not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// The broker refuses the password, at first and again later (a rotation). The hub keeps
// trying, and its listeners get a token when it is let in.
func TestBrokerRefuses(t *testing.T) {
	t.Parallel()
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	d := &doorman{}
	d.closed.Store(true)
	s := d.serve(t, port)
	h := hub(t, s.ClientURL())
	nudges, stop, err := h.Listen("u_1")
	kit.Must(t, err)
	defer stop()
	refusedThenLetIn := func() {
		t.Helper()
		before := d.refused.Load()
		kit.Eventually(t, "refused thrice", func() bool { return d.refused.Load() >= before+3 })
		if len(nudges) != 0 {
			t.Error("a listener got a token while the broker refuses the hub")
		}
		d.closed.Store(false)
		await(t, "let in", nudges)
	}
	refusedThenLetIn()
	up(t, h)
	drain([]<-chan struct{}{nudges})
	d.closed.Store(true)
	s.Shutdown()
	s.WaitForShutdown()
	d.serve(t, port)
	refusedThenLetIn()
	up(t, h)
	drain([]<-chan struct{}{nudges})
	h.Nudge(t.Context(), "u_1")
	await(t, "a nudge afterwards", nudges)
}
