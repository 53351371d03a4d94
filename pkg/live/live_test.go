package live_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/test/kit"
)

// One process nudges, another one listens. After its first token a listener misses
// nothing: by then the broker has its subscription.
func TestNudgeReachesTheUserAndNobodyElse(t *testing.T) {
	t.Parallel()
	url := kit.NATS(t).URL()
	there, here := connected(t, url), connected(t, url)
	for i := range 300 {
		userID := fmt.Sprintf("u_%d", i)
		nudges, other := listen(t, here, userID), listen(t, here, userID+"_")
		there.Nudge(t.Context(), userID)
		await(t, "the nudge of "+userID, nudges)
		if len(other) != 0 {
			t.Fatalf("%s_ was nudged, too", userID)
		}
	}
	if n := there.Lost(); n != 0 {
		t.Errorf("%d nudges lost, want none", n)
	}
}

// However often a user is nudged, a busy listener finds one token.
func TestNudgesCoalesce(t *testing.T) {
	t.Parallel()
	h := connected(t, kit.NATS(t).URL())
	nudges, last := listen(t, h, "u_1"), listen(t, h, "u_2")
	for range 500 {
		h.Nudge(t.Context(), "u_1")
	}
	h.Nudge(t.Context(), "u_2") // arrives after all of them
	await(t, "the last nudge", last)
	await(t, "the token", nudges)
	if len(nudges) != 0 {
		t.Error("the listener got a second token")
	}
}

// No dot, wildcard, space or line end ever reaches a subject.
func TestUnsafeUserIDs(t *testing.T) {
	t.Parallel()
	url := kit.NATS(t).URL()
	h, conn := connected(t, url), raw(t, url)
	everything, err := conn.SubscribeSync(">")
	kit.Must(t, err)
	kit.Must(t, conn.Flush())
	unsafe := []string{
		"", "*", ">", ".", "a.b", "a.", ".a", "a.*", "a.>", " ", "a b", "a\tb", "u\x00", "é", "用户", "\xff",
		"u_1 0\r\nPUB live.u_2 0\r\n", "a/b", "a:b", "a$b", strings.Repeat("u", 129),
	}
	for _, userID := range unsafe {
		h.Nudge(t.Context(), userID)
		if nudges, stop, err := h.Listen(userID); !errors.Is(err, live.ErrUserID) || nudges != nil || stop != nil {
			t.Errorf("Listen(%q): %v, want ErrUserID", userID, err)
		}
	}
	if n := h.Lost(); n != int64(len(unsafe)) {
		t.Errorf("%d nudges lost, want all %d", n, len(unsafe))
	}
	for _, userID := range []string{"u_01h455vb4pex5vsknk084sn02q", "-", "_", "AZaz09", strings.Repeat("u", 128)} {
		nudges := listen(t, h, userID)
		h.Nudge(t.Context(), userID)
		await(t, "the nudge of "+userID, nudges)
		msg, err := everything.NextMsg(kit.Patience)
		kit.Must(t, err)
		if msg.Subject != "live."+userID || len(msg.Data) != 0 {
			t.Errorf("%q was sent to %q, want no data to live.%s", msg.Data, msg.Subject, userID)
		}
	}
	if fault.Of(live.ErrUserID) != fault.Invalid {
		t.Error("ErrUserID is no fault.Invalid")
	}
}

// The subscription of a user ends with their last listener, and not before.
func TestStop(t *testing.T) {
	t.Parallel()
	url := kit.NATS(t).URL()
	h, conn := connected(t, url), raw(t, url)
	known := func() bool {
		_, err := conn.Request("live.u_1", nil, 50*time.Millisecond)
		return !errors.Is(err, nats.ErrNoResponders)
	}
	first, stopFirst, err := h.Listen("u_1")
	kit.Must(t, err)
	second, stopSecond, err := h.Listen("u_1")
	kit.Must(t, err)
	await(t, "first", first)
	await(t, "second", second)
	stopFirst()
	stopFirst()
	if !known() {
		t.Error("the subscription ended with the first listener")
	}
	await(t, "second, after the first stopped", second)
	if len(first) != 0 {
		t.Error("a listener got a token after it stopped")
	}
	stopSecond()
	kit.Eventually(t, "nobody is subscribed", func() bool { return !known() })
	third := listen(t, h, "u_1")
	h.Nudge(t.Context(), "u_1")
	await(t, "third", third)
}

// One process serves many streams.
func TestThousandListeners(t *testing.T) {
	t.Parallel()
	url := kit.NATS(t).URL()
	h, there := hub(t, url), connected(t, url)
	const users = 1000
	list := make([]<-chan struct{}, 0, 2*users)
	add := func(userID string) {
		nudges, stop, err := h.Listen(userID)
		kit.Must(t, err)
		t.Cleanup(stop)
		list = append(list, nudges)
	}
	for i := range users {
		add(fmt.Sprintf("u_%d", i))
		add("u_all")
	}
	began := time.Now()
	for _, nudges := range list {
		await(t, "first tokens", nudges)
	}
	listening := time.Since(began)
	up(t, h) // from now on no listener gets a first token
	drain(list)
	began = time.Now()
	for i := range users {
		there.Nudge(t.Context(), fmt.Sprintf("u_%d", i))
	}
	there.Nudge(t.Context(), "u_all")
	for _, nudges := range list {
		await(t, "nudges", nudges)
	}
	t.Logf("%d listeners known after %s, all nudged after %s", len(list), listening, time.Since(began))
}

func drain(list []<-chan struct{}) {
	for _, nudges := range list {
		select {
		case <-nudges:
		default:
		}
	}
}

// Nudges that arrive faster than the hub can pass them on are dropped: then every listener
// gets a token. Nudges that are made faster than they can be sent are dropped, too, and
// Nudge does not wait.
func TestOverflow(t *testing.T) {
	t.Parallel()
	url := kit.NATS(t).URL()
	h, conn := connected(t, url), raw(t, url)
	nudges := listen(t, h, "u_1")
	_ = listen(t, h, "u_flood")
	release := sync.OnceFunc(h.Stall())
	defer release()
	for range live.IncomingSize + 1 { // the hub has taken one out of the queue
		kit.Must(t, conn.Publish("live.u_flood", nil))
	}
	kit.Eventually(t, "no room is left", func() bool { n, _ := h.Waiting(); return n == live.IncomingSize })
	kit.Must(t, conn.Publish("live.u_1", nil))
	kit.Eventually(t, "one is dropped", func() bool { _, missed := h.Waiting(); return missed })
	quick(t, "Nudge", func() {
		for range live.OutgoingSize + 10 {
			h.Nudge(t.Context(), "u_2")
		}
	})
	if n := h.Lost(); n != 10 {
		t.Errorf("%d nudges lost, want 10", n)
	}
	release()
	await(t, "a token for the nudge that was dropped", nudges)
}

// All methods run at once, for the race detector.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	h := hub(t, kit.NATS(t).URL())
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 200 {
				userID := fmt.Sprintf("u_%d", (i+j)%5)
				nudges, stop, err := h.Listen(userID)
				if err != nil {
					t.Error(err)
					return
				}
				h.Nudge(t.Context(), userID)
				if j%20 == 0 {
					await(t, "a token", nudges)
				}
				stop()
			}
		})
	}
	group.Wait()
	group.Go(func() { h.Nudge(t.Context(), "u_1") })
	group.Go(h.Close)
	group.Go(h.Close)
	group.Wait()
}

// Close sends the nudges that wait; afterwards a hub does nothing.
func TestClose(t *testing.T) {
	t.Parallel()
	url := kit.NATS(t).URL()
	here, there := connected(t, url), connected(t, url)
	list := make([]<-chan struct{}, 200)
	for i := range list {
		list[i] = listen(t, here, fmt.Sprintf("u_%d", i))
	}
	for i := range list {
		there.Nudge(t.Context(), fmt.Sprintf("u_%d", i))
	}
	there.Close()
	for _, nudges := range list {
		await(t, "a nudge made before Close", nudges)
	}
	there.Close()
	there.Connect()
	there.Nudge(t.Context(), "u_1")
	if _, _, err := there.Listen("u_1"); fault.Of(err) != fault.Unavailable {
		t.Errorf("Listen after Close: %v, want Unavailable", err)
	}
	never := live.New(url, "never used")
	never.Close()
	never.Close()
}
