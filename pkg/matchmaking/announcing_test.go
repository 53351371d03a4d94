package matchmaking_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

const stream = "MATCHMAKING_EVENTS"

// announcing is a store with all that announces its matches: a broker, servers, workers.
type announcing struct {
	setup
	nats     *natsserver.Server
	dir      string // data directory of NATS
	js       natsjs.JetStream
	servers  *servers
	carrier  *carrier
	patience time.Duration
	wakes    int
}

func startAnnouncing(t *testing.T) *announcing {
	t.Helper()
	t.Parallel()
	return announcingOn(startOn(t, clientOf(t, kit.Redis(t).URL())))
}

func announcingOn(s setup) *announcing {
	s.t.Helper()
	f := &announcing{setup: s, dir: s.t.TempDir(), patience: time.Hour, servers: &servers{given: map[string]matchmaking.Session{}, asked: map[string]int{}}}
	f.startNATS()
	client := jetstream.New(f.nats.URL(), "test", jetstream.Limits{MaxBytes: 64 << 20, MaxAge: time.Hour, Replicas: 1})
	s.t.Cleanup(client.Close)
	f.carrier = &carrier{Publisher: jetstream.NewPublisher(client, event.MatchmakingSubject), sent: map[string]int{}}
	kit.Must(s.t, client.Ready(s.t.Context()))
	conn, err := nats.Connect(f.nats.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.IgnoreAuthErrorAbort())
	kit.Must(s.t, err)
	s.t.Cleanup(conn.Close)
	f.js, err = natsjs.New(conn)
	kit.Must(s.t, err)
	return f
}

func (f *announcing) startNATS() {
	f.t.Helper()
	n, err := natsserver.Start(f.t.Context(), natsserver.Options{Dir: f.dir})
	kit.Must(f.t, err)
	f.t.Cleanup(func() { _ = n.Stop() })
	f.nats = n
}

// servers is an allocator that gives a match the same server however often it is asked.
type servers struct {
	mutex sync.Mutex
	given map[string]matchmaking.Session
	asked map[string]int
	first func(matchmaking.Match) error // called first if not nil; its error is returned
}

func (a *servers) Allocate(_ context.Context, m matchmaking.Match) (matchmaking.Session, error) {
	a.mutex.Lock()
	a.asked[m.ID]++
	first := a.first
	a.mutex.Unlock()
	if first != nil {
		if err := first(m); err != nil {
			return matchmaking.Session{}, err
		}
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	session, ok := a.given[m.ID]
	if !ok {
		session = matchmaking.Session{Server: fmt.Sprint("arena-", len(a.given)), Address: "203.0.113.7", Ports: []matchmaking.Port{{Name: "game", Port: int32(7000 + len(a.given))}}}
		a.given[m.ID] = session
	}
	return session, nil
}

// set changes first.
func (a *servers) set(first func(matchmaking.Match) error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.first = first
}

func (a *servers) times(match string) int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.asked[match]
}

// carrier is a publisher that counts, and that a test can replace.
type carrier struct {
	outbox.Publisher
	publish func(context.Context, []event.Message) []error // nil for the real one
	mutex   sync.Mutex
	sent    map[string]int // by event id
}

func (c *carrier) Publish(ctx context.Context, messages []event.Message) []error {
	c.mutex.Lock()
	for _, m := range messages {
		c.sent[m.ID]++
	}
	c.mutex.Unlock()
	if c.publish != nil {
		return c.publish(ctx, messages)
	}
	return c.Publisher.Publish(ctx, messages)
}

// worker returns a new announcer.
func (f *announcing) worker(name string) *matchmaking.Announcer {
	return matchmaking.NewAnnouncer(matchmaking.AnnouncerConfig{
		Store: f.Store, Allocator: f.servers, Publisher: f.carrier,
		Worker: name, Patience: f.patience, Published: func() { f.wakes++ }, Log: slog.New(slog.DiscardHandler),
	})
}

func (f *announcing) step(a *matchmaking.Announcer) lease.Report {
	f.t.Helper()
	report, err := a.Step(f.t.Context())
	kit.Must(f.t, err)
	return report
}
