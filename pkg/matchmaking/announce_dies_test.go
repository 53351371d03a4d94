package matchmaking_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// dies runs a step in which the worker dies: by a panic, or because its context ends.
func (f *announcing) dies(ctx context.Context, a *matchmaking.Announcer) {
	f.t.Helper()
	died := false
	func() {
		defer func() { died = died || recover() != nil }()
		_, err := a.Step(ctx)
		died = err != nil
	}()
	if !died {
		f.t.Fatal("the worker did not die")
	}
	f.servers.set(nil)
	f.carrier.publish = nil
}

// diesAfterPublishing is a carrier's publish that panics once it has published.
func (f *announcing) diesAfterPublishing(ctx context.Context, messages []event.Message) []error {
	f.carrier.Publisher.Publish(ctx, messages)
	panic("it dies")
}

// A worker may die anywhere between claiming a match and acknowledging it: another worker
// announces the match, with the same server, when the lease is over and not before.
func TestWorkerDies(t *testing.T) {
	f := startAnnouncing(t)
	for _, c := range []struct {
		where string
		plant func(end context.CancelFunc, client *redis.Client) // of the worker
		asked int                                                // requests for a server, by both workers
		sent  int                                                // times that the match is published
	}{
		{"before it has a server", func(end context.CancelFunc, _ *redis.Client) {
			f.servers.set(func(matchmaking.Match) error { end(); return context.Canceled })
		}, 2, 1},
		{"before it wrote the server down", func(_ context.CancelFunc, client *redis.Client) {
			f.servers.set(func(matchmaking.Match) error { return client.Close() })
		}, 2, 1},
		{"when its tick's time is up", func(end context.CancelFunc, _ *redis.Client) {
			f.servers.set(func(matchmaking.Match) error { end(); return nil })
		}, 1, 2},
		{"before it published", func(context.CancelFunc, *redis.Client) {
			f.carrier.publish = func(context.Context, []event.Message) []error { panic("it dies") }
		}, 1, 2},
		{"after it published", func(context.CancelFunc, *redis.Client) { f.carrier.publish = f.diesAfterPublishing }, 1, 2},
	} {
		g := f.play("casual")
		ctx, end := context.WithCancel(t.Context())
		client := redis.NewClient(f.client.(*redis.Client).Options())
		mortal := *f
		mortal.Store = matchmaking.NewStore(client, queues())
		c.plant(end, client)
		f.dies(ctx, mortal.worker("a"))
		end()
		_ = client.Close()
		had := f.get(g.users[0], g.tickets[0]).Session
		heir := f.worker("b")
		if report := f.step(heir); report != (lease.Report{}) {
			t.Errorf("%s: before the lease is over the step reported %+v, want nothing", c.where, report)
		}
		f.leasesEnd("casual")
		if report := f.step(heir); report.Done != 1 {
			t.Errorf("%s: the step reported %+v, want 1 done", c.where, report)
		}
		session := f.isAnnounced(g)
		if server(session) == "" || had != nil && server(had) != server(session) || (had != nil) != (c.asked == 1) || server(session) != f.servers.given[g.id].Server {
			t.Errorf("%s: the server was %+v and is %+v", c.where, had, session)
		}
		if f.servers.times(g.id) != c.asked || f.carrier.sent[g.event] != c.sent {
			t.Errorf("%s: asked for a server %d times, want %d; published %d times, want %d", c.where, f.servers.times(g.id), c.asked, f.carrier.sent[g.event], c.sent)
		}
		if len(f.claimed("casual")) != 0 {
			t.Errorf("%s: still claimed are %v, want none", c.where, f.claimed("casual"))
		}
	}
}

// A worker is so slow that its lease ends and another one takes over: the match is
// announced with the server that its tickets show.
func TestSlowWorker(t *testing.T) {
	f := startAnnouncing(t)
	f.patience = 0
	g := f.play("casual")
	asked, answer := make(chan struct{}), make(chan struct{})
	f.servers.set(func(matchmaking.Match) error { close(asked); <-answer; return nil })
	done := make(chan error)
	slow := f.worker("slow")
	go func() {
		_, err := slow.Step(t.Context())
		done <- err
	}()
	<-asked
	f.servers.set(func(matchmaking.Match) error { return matchmaking.ErrNoServer })
	f.leasesEnd("casual")
	// The quick worker gets no server. Before it announces that, the slow one gets one.
	f.carrier.publish = func(ctx context.Context, messages []event.Message) []error {
		f.carrier.publish = nil
		close(answer)
		kit.Must(t, <-done)
		return f.carrier.Publisher.Publish(ctx, messages)
	}
	f.step(f.worker("quick"))
	f.isAnnounced(g)
}
