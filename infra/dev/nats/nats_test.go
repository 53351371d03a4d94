package nats

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/servertest"
	"github.com/miniserversystem/miniserver/pkg/rights"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m, nil)) }

func started(t *testing.T, o Options) *Server {
	t.Helper()
	n, err := Start(servertest.Context(t), o)
	return servertest.Started(t, n, err)
}

func jetStream(t *testing.T, n *Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestKeepsStreams(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	n := started(t, Options{Dir: dir})
	url, js := n.URL(), jetStream(t, n)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "kept.one", []byte("7")); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(servertest.Context(t), Options{Dir: dir}); !errors.Is(err, proc.ErrInUse) {
		t.Errorf("second NATS on one directory: %v, want ErrInUse", err)
	}
	servertest.Stop(t, n)
	servertest.Stop(t, n)

	n = started(t, Options{Dir: dir})
	if n.URL() != url {
		t.Errorf("URL changed from %s to %s", url, n.URL())
	}
	stream, err := jetStream(t, n).Stream(t.Context(), "KEPT")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := stream.GetMsg(t.Context(), 1); err != nil || string(msg.Data) != "7" {
		t.Errorf("message after restart: %v, %v", msg, err)
	}
	servertest.Stop(t, n)
}

func TestAvoidsTakenPort(t *testing.T) {
	t.Parallel()
	port, err := proc.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", proc.Address(port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := started(t, Options{Dir: servertest.Dir(t), Port: port})
	if n.port == port {
		t.Error("started on a taken port")
	}
	servertest.Stop(t, n)
	if err := n.run(port); !errors.Is(err, proc.ErrPortTaken) {
		t.Errorf("run on a taken port: %v, want ErrPortTaken", err)
	}
}

func TestAsksForThePassword(t *testing.T) {
	t.Parallel()
	n := started(t, Options{Dir: servertest.Dir(t)})
	if conn, err := nats.Connect("nats://" + proc.Address(n.port)); err == nil {
		conn.Close()
		t.Error("connected without a password")
	}
	servertest.Stop(t, n)
}

func TestUserReachesItsSubjectsOnly(t *testing.T) {
	t.Parallel()
	n := started(t, Options{Dir: servertest.Dir(t), Users: map[string]rights.Rights{"stream": {Listens: []string{"live.*"}}}})
	refused := make(chan error, 10)
	conn, err := nats.Connect(n.URLAs("stream"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, subject := range []string{"entitlement.events", "live.u_1", "$JS.API.STREAM.DELETE.ENTITLEMENT_EVENTS", "$JS.API.STREAM.PURGE.ENTITLEMENT_EVENTS"} {
		if err := conn.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, refused, subject)
	}
	for _, subject := range []string{">", "entitlement.events", "_INBOX.>", "_INBOX_notify.>"} {
		if _, err := conn.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, refused, subject)
	}
	listened, err := conn.SubscribeSync("live.u_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	owner, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if err := owner.Publish("live.u_1", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := listened.NextMsg(10 * time.Second); err != nil {
		t.Errorf("no message on a subject that the user may read: %v", err)
	}
}

func wantRefused(t *testing.T, refused <-chan error, subject string) {
	t.Helper()
	select {
	case err := <-refused:
		if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v, want a permissions violation", subject, err)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("%s: the server did not refuse it", subject)
	}
}
