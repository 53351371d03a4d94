package notification

import (
	"context"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// Finished describes the notifications to operators, who requeue FAILED ones. The dead
// letter of one goes with it: if it stayed, the notification would look as if it had failed
// twice.
func (s *Store) Finished() lease.Finished {
	return lease.Finished{
		Pool: s.pool, Name: Table, ID: "notification_id", Done: "sent_at", Owner: "user_id",
		Also:   `DELETE FROM notification.notification_dlq d USING changed WHERE d.notification_id = changed.id`,
		Format: textID, Parse: parseID,
	}
}

// Letters are the messages that could not be read.
func (s *Store) Letters() deadletter.Box {
	return deadletter.Box{Pool: s.pool, Table: "notification.notification_dlq", Where: "notification_id IS NULL"}
}

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
