package live_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) {
	code := kit.Main(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const (
	// prompt bounds a call that never waits, on a busy machine; dialling a broker that
	// hangs takes three seconds.
	prompt = time.Second
)

// hub returns a hub that is closed when the test ends.
func hub(t testing.TB, url string) *live.Hub {
	t.Helper()
	h := live.New(url, "test")
	t.Cleanup(h.Close)
	return h
}

// connected returns a hub whose connection is up, so that its nudges are sent.
func connected(t testing.TB, url string) *live.Hub {
	t.Helper()
	h := hub(t, url)
	up(t, h)
	return h
}

// up returns when h is connected.
func up(t testing.TB, h *live.Hub) {
	t.Helper()
	nudges, stop, err := h.Listen("u_up")
	kit.Must(t, err)
	defer stop()
	await(t, "the connection", nudges)
}

// listen returns a channel after its first token: the broker has the subscription.
func listen(t testing.TB, h *live.Hub, userID string) <-chan struct{} {
	t.Helper()
	nudges, stop, err := h.Listen(userID)
	kit.Must(t, err)
	t.Cleanup(stop)
	await(t, "the first token", nudges)
	return nudges
}

func await(t testing.TB, what string, nudges <-chan struct{}) {
	t.Helper()
	select {
	case <-nudges:
	case <-time.After(kit.Patience):
		t.Fatalf("not within %s: %s", kit.Patience, what)
	}
}

// raw returns a plain connection to the broker, without a hub.
func raw(t testing.TB, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url)
	kit.Must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// start starts NATS in dir, at the same address as again, if given.
func start(t testing.TB, dir string, again ...*natsserver.Server) *natsserver.Server {
	t.Helper()
	n, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	kit.Must(t, err)
	t.Cleanup(func() { _ = n.Stop() })
	for _, before := range again {
		if before.URL() != n.URL() {
			t.Fatalf("NATS came back at %s, want %s", n.URL(), before.URL())
		}
	}
	return n
}

// quick fails the test if do waits for something.
func quick(t testing.TB, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	if took := time.Since(began); took > prompt {
		t.Errorf("%s took %s, want %s at most", what, took, prompt)
	}
}
