package stream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// idsOf returns the ids of events, each once.
func idsOf(lists ...[]system.StreamEvent) map[string]bool {
	ids := map[string]bool{}
	for _, list := range lists {
		for _, e := range list {
			ids[e.ID] = true
		}
	}
	return ids
}

// A client that resumes from the last event's id misses nothing, however much was sent
// meanwhile; an event that comes again has the same id.
func TestStreamResumes(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "LEASE_BATCH=40", system.RareLooks) // a batch is sent at one moment, and read as one
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	granted := 0
	deliver := func(n int) {
		t.Helper()
		system.AtOnce(n, func(i int) { s.Grant(fmt.Sprint("k", granted+i), user, system.SKU(granted+i)) })
		granted += n
		s.DeliverAll()
	}
	const before = 3 // in the inbox, and on no stream
	deliver(before)
	seen := map[string]string{} // ids by item
	leave := func(f *system.Follower) {
		t.Helper()
		f.HangUp()
		<-f.Ended
		events := f.Got()
		if len(idsOf(events)) != len(events) {
			t.Errorf("%d events for %d notifications on one stream", len(events), len(idsOf(events)))
		}
		for _, e := range events {
			item := e.Item(t)
			if seen[item] != "" && seen[item] != e.ID {
				t.Errorf("%s came with the ids %s and %s", item, seen[item], e.ID)
			}
			seen[item] = e.ID
		}
	}
	has := func(f *system.Follower) func() bool {
		return func() bool {
			items := map[string]bool{}
			for item := range seen {
				items[item] = true
			}
			for _, e := range f.Got() {
				items[e.Item(t)] = true
			}
			for n := before; n < granted; n++ {
				if !items[system.SKU(n)] {
					return false
				}
			}
			return true
		}
	}
	f := s.Follow(alice)
	kit.Eventually(t, "a position before the first event", func() bool { return strings.HasPrefix(f.Position(), "t_") })
	leave(f)
	for _, step := range []struct {
		while int
		path  string // with the position in it, or ""
	}{
		{2, ""},
		{50, ""},
		{230, system.StreamPath + "?last_event_id="}, // more than two pages, to a client that cannot send the header
		{1, ""},
	} {
		deliver(step.while)
		if at := f.Position(); step.path != "" {
			f = s.FollowAt(step.path+at, alice)
		} else {
			f = s.Follow(alice, "Last-Event-ID: "+at)
		}
		kit.Within(t, system.NudgedIn, fmt.Sprint("at once, all events that were sent while it was away: ", step.while), has(f))
		deliver(1)
		kit.Eventually(t, "the event that is sent now", has(f))
		leave(f)
	}
}

// A Last-Event-ID that is not an event of the caller's opens a stream that begins now.
func TestStreamJunkPosition(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "STREAMS_PER_USER=100")
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	user, other := s.UserID(alice), s.UserID(bob)
	s.Grant("before", user, "before")
	s.Grant("bob's", other, "item1")
	s.DeliverAll()
	bobs := s.Call(http.MethodGet, "/v1/me/notifications", bob, "").JSON(t)["notifications"].([]any)[0].(map[string]any)["notification_id"].(string)
	junk := []string{"x", "t_", "t_x", "t_1.5", "t_99999999999999999999", "n_", "n_zzz", bobs, strings.ToUpper(bobs), "0", "'; --", "\xff\xfe", "💥", strings.Repeat("9", 64)}
	var streams []*system.Follower
	for _, id := range junk {
		streams = append(streams, s.Follow(alice, "Last-Event-ID: "+id))
	}
	s.Grant("after", user, "after")
	s.DeliverAll()
	for i, f := range streams {
		if e := f.Until(1); len(e) != 1 || !strings.Contains(e[0].Data, `"after"`) {
			t.Errorf("from %q came %v, want only the later grant", junk[i], e)
		}
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.StreamPath, alice, "", "Last-Event-ID: "+strings.Repeat("n", 65)), http.StatusUnprocessableEntity, "request_invalid")
}

// A position in the distant past gets everything again.
func TestStreamFromLongAgo(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	s.Grant("before", user, "before")
	s.DeliverAll()
	for _, id := range []string{"t_0", "t_1", "t_-1", "t_-99999999999999999", "t_-300000000000000000", "t_-9223372036854775808"} {
		if e := s.Follow(alice, "Last-Event-ID: "+id).Until(1); len(e) != 1 || !strings.Contains(e[0].Data, `"before"`) {
			t.Errorf("from %s came %v, want the earlier grant", id, e)
		}
	}
	s.Grant("since", user, "since")
	s.DeliverAll()
	_, err := s.Pool.Exec(t.Context(), `UPDATE notification.notifications SET finished_at = finished_at - interval '1 hour'`)
	kit.Must(t, err)
	seen := s.Follow(alice, "Last-Event-ID: t_0").Until(1)[0]
	if e := s.Follow(alice, "Last-Event-ID: "+seen.ID).Until(2); len(e) != 2 || !strings.Contains(e[1].Data, `"since"`) {
		t.Errorf("from what was sent an hour ago came %v, want the grant since", e)
	}
}

// A position in the future, which none of our clocks made, counts as none: the stream
// must not be silent until then.
func TestStreamFromTheFuture(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	f := s.Follow(alice, "Last-Event-ID: t_"+fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()))
	s.Grant("after", user, "after")
	s.DeliverAll()
	f.UntilWithin(1, 3*time.Second)
}

// A notification that is sent only at a later attempt comes after younger ones, also to a
// client that was away meanwhile.
func TestStreamHasWhatWasSentLate(t *testing.T) {
	t.Parallel()
	var refusing atomic.Bool
	refusing.Store(true)
	receiver := &httptest.Server{Listener: kit.Listen(t), Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if refusing.Load() && strings.Contains(string(body), "slow") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}}
	receiver.Start()
	t.Cleanup(receiver.Close)
	s, people := system.StartWithPeople(t, "WAKES=false", "NOTIFICATION_CHANNEL=webhook", "WEBHOOK_URLS="+receiver.URL,
		"WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WEBHOOK_ALLOW_PRIVATE=true", "LEASE_BACKOFF_BASE=10ms", "LEASE_BACKOFF_CAP=10ms")
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	staying, leaving := s.Follow(alice), s.Follow(alice)
	for _, item := range []string{"slow1", "quick1", "slow2", "quick2"} {
		s.Grant(item, user, item)
		s.DeliverAll()
	}
	quick := leaving.Until(2)
	if len(idsOf(quick)) != 2 || len(idsOf(staying.Until(2))) != 2 {
		t.Fatalf("before the receiver accepts the others, two events are wanted: %v", quick)
	}
	leaving.HangUp()
	<-leaving.Ended
	refusing.Store(false)
	kit.Eventually(t, "all are sent", func() bool {
		s.TryTick("deliver")
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == 4
	})
	back := s.Follow(alice, "Last-Event-ID: "+leaving.Position())
	kit.Eventually(t, "both have all four", func() bool {
		return len(idsOf(staying.Got())) == 4 && len(idsOf(quick, back.Got())) == 4
	})
	if late := staying.Got()[3]; !strings.Contains(late.Data, "slow") || late.ID > quick[1].ID {
		t.Errorf("the last event is %s, not older than %s: this test shows nothing", late.Data, quick[1].ID)
	}
}
