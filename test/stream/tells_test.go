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

// A grant is on every tab of its user at once, by wakes and a nudge, with exactly
// the fields that the inbox has; nobody else sees it.
func TestStreamTells(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t)
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	user, other := s.UserID(alice), s.UserID(bob)
	tabs := []*system.Follower{s.Follow(alice), s.Follow(alice), s.Follow(alice)}
	bobs := s.Follow(bob)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := tabs[0].Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q", name, got)
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
		t.Errorf("the median is %s", median)
	}
	system.WantStatus(t, s.Grant("bob's", other, "item1"), http.StatusOK)
	if e := bobs.Until(1); len(e) != 1 || !strings.Contains(e[0].Data, other) {
		t.Errorf("bob is told %v", e)
	}
	inbox := s.Call(http.MethodGet, "/v1/me/notifications", alice, "").JSON(t)["notifications"].([]any)
	slices.Reverse(inbox) // oldest first
	fields := []string{"attempt_count", "created_at", "event_id", "event_type", "notification_id", "payload", "read_at", "sent_at", "status"}
	for _, tab := range tabs {
		events := tab.Got()
		if len(events) != grants || len(inbox) != grants {
			t.Fatalf("%d events, %d in the inbox", len(events), len(inbox))
		}
		for i, e := range events {
			var told map[string]any
			kit.Must(t, json.Unmarshal([]byte(e.Data), &told))
			var names []string
			for name := range told {
				names = append(names, name)
			}
			slices.Sort(names)
			if !slices.Equal(names, fields) || !reflect.DeepEqual(told, inbox[i]) {
				t.Errorf("event %d: %s\ninbox: %v", i, e.Data, inbox[i])
			}
			if e.Name != "notification" || e.ID != told["notification_id"] || told["status"] != "SENT" {
				t.Errorf("event %d: %q %q %v", i, e.Name, e.ID, told["status"])
			}
		}
		if retry := tab.Retry; len(retry) != 4 || retry[0] != '1' {
			t.Errorf("retry: %q, want one to two seconds", retry)
		}
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.StreamPath, "", ""), http.StatusUnauthorized, "token_missing")
}

// Without NATS, what is sent arrives by the look that every stream takes; when
// NATS is back, by a nudge again.
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
	for n := range 3 { // accepted, and not sent yet
		s.Grant(fmt.Sprint("meanwhile", n), user, system.SKU(n))
	}
	s.Tick("relay")
	s.Tick("notify")
	kit.Must(t, own.Stop())
	s.Tick("deliver")
	sent := time.Now()
	opened := s.Follow(alice, "Last-Event-ID: "+f.Position()) // without NATS, one can begin too
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
	kit.Eventually(t, "nudges come again", func() bool {
		n := len(f.Got())
		s.Grant(fmt.Sprint("again", n, time.Now()), user, "again")
		s.DeliverAll()
		told := time.Now()
		return f.Until(n + 1)[n].At.Sub(told) < lookEvery/10
	})
	if !f.Open() {
		t.Errorf("the stream ended: %v", f.End)
	}
}

// Behind a transaction pooler every statement runs in another mode of the protocol.
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
				t.Errorf("this should not be answered %d %s", read.Status, read.Body)
			}
		})
	}
}
