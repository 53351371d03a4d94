package stream_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A grant reaches every tab of its user at once, by wakes and a nudge, with exactly the
// fields of the inbox; nobody else receives it.
func TestStreamDelivers(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t)
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	user, other := s.UserID(alice), s.UserID(bob)
	tabs := []*system.Follower{s.Follow(alice), s.Follow(alice), s.Follow(alice)}
	bobs := s.Follow(bob)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := tabs[0].Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	const grants = 9
	var took []time.Duration
	for n := range grants {
		system.WantStatus(t, s.Grant(fmt.Sprint("k", n), user, system.SKU(n)), http.StatusOK)
		answered := time.Now()
		for _, tab := range tabs {
			took = append(took, tab.Until(n + 1)[n].At.Sub(answered))
		}
	}
	slices.Sort(took)
	t.Logf("from a grant's answer to the stream: median %s, most %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %s, want a second at most", median)
	}
	system.WantStatus(t, s.Grant("bob's", other, "item1"), http.StatusOK)
	if e := bobs.Until(1); len(e) != 1 || !strings.Contains(e[0].Data, other) {
		t.Errorf("bob received %v, want his grant", e)
	}
	inbox := s.Call(http.MethodGet, "/v1/me/notifications", alice, "").JSON(t)["notifications"].([]any)
	slices.Reverse(inbox) // oldest first
	fields := []string{"attempt_count", "created_at", "event_id", "event_type", "notification_id", "payload", "read_at", "sent_at", "status"}
	for _, tab := range tabs {
		events := tab.Got()
		if len(events) != grants || len(inbox) != grants {
			t.Fatalf("%d events and %d in the inbox, want %d", len(events), len(inbox), grants)
		}
		for i, e := range events {
			var got map[string]any
			kit.Must(t, json.Unmarshal([]byte(e.Data), &got))
			var names []string
			for name := range got {
				names = append(names, name)
			}
			slices.Sort(names)
			if !slices.Equal(names, fields) || !reflect.DeepEqual(got, inbox[i]) {
				t.Errorf("event %d: %s\ninbox: %v", i, e.Data, inbox[i])
			}
			if e.Name != "notification" || e.ID != got["notification_id"] || got["status"] != "SENT" {
				t.Errorf("event %d: %q %q %v, want a SENT notification with its id", i, e.Name, e.ID, got["status"])
			}
		}
		if retry := tab.Retry; len(retry) != 4 || retry[0] != '1' {
			t.Errorf("retry: %q, want one to two seconds", retry)
		}
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.StreamPath, "", ""), http.StatusUnauthorized, "token_missing")
}

// Without NATS, what is sent arrives when the stream looks by itself; when NATS is back,
// by a nudge again.
func TestStreamWithoutNATS(t *testing.T) {
	t.Parallel()
	const lookEvery = 4 * time.Second
	dir := t.TempDir()
	own, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	kit.Must(t, err)
	t.Cleanup(func() { _ = own.Stop() })
	s, people := system.StartWithPeople(t, "WAKES=false", "STREAM_LOOK_EVERY="+lookEvery.String(), "NATS_URL="+own.URL())
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	f := s.Follow(alice)
	s.Grant("k1", user, "item1")
	s.DeliverAll()
	f.Until(1)
	for n := range 3 { // accepted, but not sent yet
		s.Grant(fmt.Sprint("meanwhile", n), user, system.SKU(n))
	}
	s.Tick("relay")
	s.Tick("notify")
	kit.Must(t, own.Stop())
	s.Tick("deliver")
	sent := time.Now()
	opened := s.Follow(alice, "Last-Event-ID: "+f.Position()) // a stream can be opened without NATS too
	opened.Until(3)
	events := f.Until(4)
	t.Logf("without NATS it took %s", events[3].At.Sub(sent))
	again, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	kit.Must(t, err)
	t.Cleanup(func() { _ = again.Stop() })
	s.Grant("back", user, "back")
	kit.Eventually(t, "the rest is sent", func() bool {
		for _, function := range []string{"relay", "notify", "deliver"} {
			s.TryTick(function)
		}
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == 5
	})
	f.Until(5)
	kit.Eventually(t, "nudges arrive again", func() bool {
		n := len(f.Got())
		s.Grant(fmt.Sprint("again", n, time.Now()), user, "again")
		s.DeliverAll()
		delivered := time.Now()
		return f.Until(n + 1)[n].At.Sub(delivered) < lookEvery/10
	})
	if !f.Open() {
		t.Errorf("the stream ended: %v", f.End)
	}
}

// The modes that statements may run in behind a transaction pooler.
func TestStreamInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, people := system.StartWithPeople(t, "WAKES=false", "POSTGRES_EXEC_MODE="+mode)
			alice := people.Player(t, "alice")
			user := s.UserID(alice)
			f := s.Follow(alice)
			s.Grant("k1", user, "item1")
			s.DeliverAll()
			last := f.Until(1)[0].ID
			s.Follow(alice, "Last-Event-ID: "+last).Until(1)
			read := s.Call(http.MethodPost, "/v1/me/notifications/"+last+"/read", alice, "")
			if read.Status != http.StatusOK || read.JSON(t)["read_at"] == nil {
				t.Errorf("marking it read answered %d %s, want 200 with read_at", read.Status, read.Body)
			}
		})
	}
}
