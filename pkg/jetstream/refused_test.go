package jetstream_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

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
	return serve(t, &server.Options{Port: port, StoreDir: dir, CustomClientAuthentication: d})
}

func serve(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.JetStream, o.NoSigs, o.NoLog = "127.0.0.1", true, true, true
	s, err := server.NewServer(o)
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

// A server of a cluster stays connected and answers pings, but JetStream on it is of no use:
// it refuses, or what is asked gets no answer at all. Publishers and consumers go to another
// server, without a restart of their process, and once, however many notice it together.
func TestLeavesAServerThatIsOfNoUse(t *testing.T) {
	t.Parallel()
	const together = 20
	for _, silent := range []bool{false, true} {
		for _, uses := range []string{"publish", "consume", "ask whether it is ready"} {
			t.Run(fmt.Sprintf("silent %v, they %s", silent, uses), func(t *testing.T) {
				t.Parallel()
				servers := []*server.Server{
					serve(t, &server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir()}),
					serve(t, &server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir()}),
				}
				client := jetstream.New(servers[0].ClientURL()+","+servers[1].ClientURL(), "test", limits)
				t.Cleanup(client.Close)
				p := jetstream.NewPublisher(client, event.EntitlementSubject)
				c := jetstream.NewConsumer(client, event.EntitlementSubject, "notify")
				use := map[string]func() error{
					"publish":                 func() error { return p.Publish(t.Context(), []event.Message{message("one")})[0] },
					"consume":                 func() error { _, err := c.Fetch(t.Context(), 1); return err },
					"ask whether it is ready": func() error { return client.Ready(t.Context()) },
				}[uses]
				all := func() (err error) {
					results := make(chan error, together)
					for range together {
						go func() { results <- use() }()
					}
					for range together {
						err = errors.Join(err, <-results)
					}
					return err
				}
				kit.Must(t, all())
				one, other := servers[0], servers[1]
				if one.NumClients() == 0 { // the library begins with any of them
					one, other = other, one
				}

				kit.Must(t, one.DisableJetStream())
				if silent {
					deaf, err := nats.Connect(one.ClientURL())
					kit.Must(t, err)
					t.Cleanup(deaf.Close)
					_, err = deaf.Subscribe(">", func(*nats.Msg) {})
					kit.Must(t, err)
					kit.Must(t, deaf.Flush())
				}
				if use() == nil && other.NumClients() == 0 {
					t.Fatal("a server without JetStream took it")
				}
				kit.Eventually(t, "another server is used", func() bool { return all() == nil })
				seen, err := other.Varz(nil)
				kit.Must(t, err)
				if seen.TotalConnections != 1 {
					t.Errorf("%d connections to the other server, want 1", seen.TotalConnections)
				}
			})
		}
	}
}
