package live_test

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The broker stops and comes back. No call waits for it, and each listener gets a token
// afterwards, because nudges were missed.
func TestBrokerStopsAndComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker := start(t, dir)
	here, there := connected(t, broker.URL()), connected(t, broker.URL())
	first, second := listen(t, here, "u_1"), listen(t, here, "u_2")
	kit.Must(t, broker.Stop())

	kit.Eventually(t, "the hub knows", func() bool {
		before := there.Lost()
		there.Nudge(t.Context(), "u_1")
		return there.Lost() > before
	})
	quick(t, "Nudge", func() {
		for range 10_000 {
			there.Nudge(t.Context(), "u_1")
		}
	})
	if n := there.Lost(); n < 10_000 {
		t.Errorf("%d nudges lost, want all: some were buffered", n)
	}
	third, stop, err := here.Listen("u_3")
	kit.Must(t, err)
	defer stop()
	if len(first)+len(second)+len(third) != 0 {
		t.Error("a listener got a token while the broker is away")
	}

	start(t, dir, broker)
	await(t, "first", first)
	await(t, "second", second)
	await(t, "third, which came meanwhile", third)
	up(t, there)
	up(t, here)
	drain([]<-chan struct{}{first, second, third})
	there.Nudge(t.Context(), "u_3")
	await(t, "a nudge afterwards", third)
	if len(first)+len(second) != 0 {
		t.Error("other users were nudged, too")
	}
}

// A hub that is used before the broker runs connects when the broker starts.
func TestBrokerComesLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker := start(t, dir)
	kit.Must(t, broker.Stop())
	h := hub(t, broker.URL())
	quick(t, "Nudge", func() {
		for range 1000 {
			h.Nudge(t.Context(), "u_1")
		}
	})
	var nudges <-chan struct{}
	quick(t, "Listen", func() {
		var stop func()
		var err error
		nudges, stop, err = h.Listen("u_1")
		kit.Must(t, err)
		t.Cleanup(stop)
	})
	start(t, dir, broker)
	await(t, "the first token", nudges)
	up(t, h)
	drain([]<-chan struct{}{nudges})
	h.Nudge(t.Context(), "u_1")
	await(t, "a nudge", nudges)
}

// At the broker's address something accepts connections and never answers, so each attempt
// to connect hangs until it times out. Callers of the hub do not notice.
func TestBrokerHangs(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"at first": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			broker := start(t, dir)
			h := live.New(broker.URL(), "test")
			t.Cleanup(h.Close)
			var before <-chan struct{}
			if used {
				before = listen(t, h, "u_1")
			}
			kit.Must(t, broker.Stop())
			taken := mute(t, broker.URL())
			if !used {
				h.Connect()
			}
			<-taken // an attempt is under way, and holds the library's lock
			for i := range 20 {
				quick(t, "Nudge and Listen", func() {
					userID := fmt.Sprintf("u_%d", i)
					h.Nudge(t.Context(), userID)
					_, stop, err := h.Listen(userID)
					kit.Must(t, err)
					stop()
				})
			}
			if used && len(before) != 0 {
				t.Error("a listener got a token without a broker")
			}
			began := time.Now()
			h.Close()
			if took := time.Since(began); took > live.CloseWait+prompt {
				t.Errorf("Close took %s, want %s at most", took, live.CloseWait+prompt)
			}
		})
	}
}

// mute listens at the address of at, never answers, and reports each connection.
func mute(t *testing.T, at string) (taken chan struct{}) {
	t.Helper()
	u, err := url.Parse(at)
	kit.Must(t, err)
	listener, err := net.Listen("tcp", u.Host)
	kit.Must(t, err)
	taken = make(chan struct{}, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			taken <- struct{}{}
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return taken
}
