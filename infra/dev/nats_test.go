package dev

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func startNATS(t *testing.T, o NATSOptions) *NATS {
	t.Helper()
	began := time.Now()
	n, err := StartNATS(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("NATS ready after %d ms", time.Since(began).Milliseconds())
	t.Cleanup(func() { n.Stop() })
	return n
}

func jetStream(t *testing.T, n *NATS) jetstream.JetStream {
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

func TestNATSKeepsStreams(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	n := startNATS(t, NATSOptions{Dir: dir})
	url, js := n.URL(), jetStream(t, n)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "kept.one", []byte("7")); err != nil {
		t.Fatal(err)
	}
	if _, err := StartNATS(testContext(t), NATSOptions{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("second NATS on one directory: %v", err)
	}
	stop(t, n)
	stop(t, n)

	n = startNATS(t, NATSOptions{Dir: dir})
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
	stop(t, n)
}

func TestNATSAvoidsTakenPort(t *testing.T) {
	t.Parallel()
	port, err := FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := startNATS(t, NATSOptions{Dir: serverDir(t), Port: port})
	if n.port == port {
		t.Error("started on a taken port")
	}
	stop(t, n)
	if err := n.run(port); !errors.Is(err, errPortTaken) {
		t.Errorf("run on a taken port: %v", err)
	}
}

func TestNATSAsksForThePassword(t *testing.T) {
	t.Parallel()
	n := startNATS(t, NATSOptions{Dir: serverDir(t)})
	if conn, err := nats.Connect("nats://" + hostPort(n.port)); err == nil {
		conn.Close()
		t.Error("connected without a password")
	}
	stop(t, n)
}
