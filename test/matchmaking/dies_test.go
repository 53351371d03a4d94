package matchmaking_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// dying is a publisher whose process dies as soon as the broker has all messages.
type dying struct{ outbox.Publisher }

func (d dying) Publish(ctx context.Context, messages []event.Message) []error {
	d.Publisher.Publish(ctx, messages)
	runtime.Goexit()
	return nil
}

// dies runs an announcer that dies after publishing.
func dies(s *system.System, client redis.UniversalClient) {
	s.T.Helper()
	server, err := matchmaking.NewFixedServer(s.Settings().GameServer)
	kit.Must(s.T, err)
	publisher := dying{msjetstream.NewPublisher(s.Runtime.NATS(), event.MatchmakingSubject)}
	announcer := matchmaking.NewAnnouncer(matchmaking.AnnouncerConfig{
		Store: store(s, client), Allocator: server, Publisher: publisher,
		Worker: "dies", Patience: time.Minute, Published: func() {}, Log: s.Runtime.Log,
	})
	var report any
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		report, err = announcer.Step(context.Background())
		report = fmt.Sprint(report, err)
	}()
	<-dead
	if report != nil {
		s.T.Fatalf("the announcer did not die, and returned %v", report)
	}
}

// A matcher dies right after it made a match: later ticks announce the match all the
// same.
func TestMatcherDies(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	client := s.QueueClient()
	defer client.Close()
	users := paired(s, people, client, "alice", "bob")
	wantNotNotified(s, users)
	for _, function := range []string{"announce", "notify"} {
		if report := s.Tick(function); report.Done != 1 {
			t.Errorf("the tick of %s reports %+v, want one done", function, report)
		}
	}
	s.Tick("deliver")
	wantNotified(s, users)
	wantWhole(s)
}

// An announcer dies after publishing: when its lease is over, another one publishes the
// match again. Each player is still notified once, with a broker that remembers the first
// time and with one that does not. (Other deaths of announcers are tested in
// pkg/matchmaking.)
func TestAnnouncerDies(t *testing.T) {
	t.Parallel()
	for name, forgotten := range map[string]bool{"the broker remembers": false, "the broker forgot what was published": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, people := system.StartWithPeople(t, "WAKES=false")
			client := s.QueueClient()
			defer client.Close()
			kit.Must(t, s.Runtime.NATS().Ready(t.Context()))
			users := paired(s, people, client, "alice", "bob")
			dies(s, client)
			if n := published(s, t); n != 1 {
				t.Fatalf("the broker has %d messages, want 1", n)
			}
			if forgotten {
				s.Tick("notify")
				s.Tick("deliver")
				wantNotified(s, users)
				loseMatches(s, t, true)
				s.Tick("notify") // finds the stream gone, and creates it again
			}
			if report := s.Tick("announce"); report.Claimed != 0 {
				t.Errorf("announce during the lease: %+v, want nothing claimed", report)
			}
			leasesPass(s, client)
			if report := s.Tick("announce"); report.Claimed != 1 || report.Done != 1 {
				t.Errorf("announce after the lease: %+v, want one done", report)
			}
			if n := published(s, t); n != 1 {
				t.Errorf("the broker has %d messages, want 1", n)
			}
			s.Tick("notify")
			s.Tick("deliver")
			wantNotified(s, users)
			if report := s.Tick("announce"); report.Claimed != 0 {
				t.Errorf("announce once more: %+v, want nothing claimed", report)
			}
			if claimed := client.XPending(t.Context(), "mm:events:{casual}", "announce").Val(); claimed.Count != 0 {
				t.Errorf("still claimed: %+v", claimed)
			}
		})
	}
}
