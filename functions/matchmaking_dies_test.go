package functions_test

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
)

// dying is a publisher whose process dies as soon as the broker has everything.
type dying struct{ outbox.Publisher }

func (d dying) Publish(ctx context.Context, messages []event.Message) []error {
	d.Publisher.Publish(ctx, messages)
	runtime.Goexit()
	return nil
}

// dies runs an announcer that dies after it published.
func (s *system) dies(client redis.UniversalClient) {
	s.t.Helper()
	server, err := matchmaking.NewFixedServer(s.runtime.Settings.GameServer)
	must(s.t, err)
	publisher := dying{msjetstream.NewPublisher(s.runtime.NATS(), event.MatchmakingSubject)}
	announcer := matchmaking.NewAnnouncer(s.store(client), server, publisher, "dies", time.Minute, func() {}, s.runtime.Log)
	var report any
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		report, err = announcer.Step(context.Background())
		report = fmt.Sprint(report, err)
	}()
	<-dead
	if report != nil {
		s.t.Fatalf("it lives, and did %v", report)
	}
}

// A matcher dies right after it made a match: the match is told all the same, by
// ticks that know nothing of it.
func TestMatcherDies(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	client := s.queueClient()
	defer client.Close()
	users := s.paired(people, client, "alice", "bob")
	s.untold(users)
	for _, function := range []string{"announce", "notify"} {
		if report := s.tick(function); report.Done != 1 {
			t.Errorf("%s: %+v", function, report)
		}
	}
	s.tick("deliver")
	s.wantTold(users)
	s.wantWhole()
}

// An announcer dies after it published: when its lease is over, another one tells it
// again. Each player is told once all the same, by a broker that remembers the first
// time, and by one that does not. (What else may happen to an announcer is tested in
// pkg/matchmaking.)
func TestAnnouncerDies(t *testing.T) {
	t.Parallel()
	for name, forgotten := range map[string]bool{"the broker remembers": false, "the broker forgot what was told": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, people := withPlayers(t, "WAKES=false")
			client := s.queueClient()
			defer client.Close()
			must(t, s.runtime.NATS().Ready(t.Context()))
			users := s.paired(people, client, "alice", "bob")
			s.dies(client)
			if n := s.published(t); n != 1 {
				t.Fatalf("the broker has %d", n)
			}
			if forgotten {
				s.tick("notify")
				s.tick("deliver")
				s.wantTold(users)
				s.loseMatches(t, true)
				s.tick("notify") // finds out, and the stream is made again
			}
			if report := s.tick("announce"); report.Claimed != 0 {
				t.Errorf("while the lease lasts: %+v", report)
			}
			s.leasesPass(client)
			if report := s.tick("announce"); report.Claimed != 1 || report.Done != 1 {
				t.Errorf("when it is over: %+v", report)
			}
			if n := s.published(t); n != 1 {
				t.Errorf("the broker has %d", n)
			}
			s.tick("notify")
			s.tick("deliver")
			s.wantTold(users)
			if report := s.tick("announce"); report.Claimed != 0 {
				t.Errorf("once more: %+v", report)
			}
			if claimed := client.XPending(t.Context(), "mm:events:{casual}", "announce").Val(); claimed.Count != 0 {
				t.Errorf("still claimed: %+v", claimed)
			}
		})
	}
}
