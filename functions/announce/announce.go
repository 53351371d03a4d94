// Package announce is the function that finds a game server for each match and
// publishes its event to JetStream, as relay does for events in an outbox. It is a
// function of its own, so that neither a slow allocator nor a Redis that is away
// delays other events.
package announce

import (
	"fmt"

	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/agones"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// New registers the function.
func New(e *fn.Env) error {
	store, _, err := queues.Open(e)
	if err != nil {
		return err
	}
	allocator, err := allocatorOf(e)
	if err != nil {
		return err
	}
	announcer := matchmaking.NewAnnouncer(matchmaking.AnnouncerConfig{
		Store: store, Allocator: allocator, Publisher: jetstream.NewPublisher(e.NATS(), event.MatchmakingSubject),
		Worker: e.Worker(), Patience: e.Settings.AllocatorPatience, Published: e.Waker("notify"), Log: e.Logger(),
	})
	e.Tick(tick.Source{Name: "matches", Step: announcer.Step})
	return nil
}

func allocatorOf(e *fn.Env) (matchmaking.Allocator, error) {
	s := e.Settings
	if s.Allocator != "agones" {
		fixed, err := matchmaking.NewFixedServer(s.GameServer)
		if err != nil {
			return nil, fmt.Errorf("GAME_SERVER: %w", err)
		}
		return fixed, nil
	}
	return agones.New(agones.Options{
		URL: s.AgonesURL, Namespace: s.AgonesNamespace, Fleet: s.AgonesFleet,
		CertFile: s.AgonesCert, KeyFile: s.AgonesKey, CAFile: s.AgonesCA,
	})
}
