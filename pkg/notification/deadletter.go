package notification

import (
	"context"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
)

// AcceptAll is Accept, as consumers of events need it.
func (s *Store) AcceptAll(ctx context.Context, records []event.Record) error {
	_, err := s.Accept(ctx, records)
	return err
}

// Poison is the function Poison, as a method.
func (s *Store) Poison(err error) bool { return Poison(err) }

// DeadLetter keeps a message that can never be accepted.
func (s *Store) DeadLetter(ctx context.Context, l deadletter.Letter) error {
	return deadletter.Put(ctx, s.pool, "notification.notification_dlq", l)
}
