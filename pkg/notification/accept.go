package notification

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Locks are taken in the order of event ids: two instances with the same events wait
// for each other instead of deadlocking.
const acceptSQL = `
WITH input AS (
	SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[])
		AS i(notification_id, event_id, user_id, event_type, payload, occurred_at, traceparent)
), fresh AS (
	INSERT INTO notification.processed_events (event_id)
	SELECT DISTINCT event_id FROM input ORDER BY event_id
	ON CONFLICT DO NOTHING
	RETURNING event_id
), notified AS (
	INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, traceparent)
	SELECT notification_id, event_id, user_id, event_type, payload::jsonb, occurred_at, traceparent
	FROM input JOIN fresh USING (event_id)
	ORDER BY event_id, user_id
	ON CONFLICT DO NOTHING
	RETURNING 1
)
SELECT count(*) FROM notified`

// Accept turns events into PENDING notifications, one per event and recipient,
// in one statement, and returns how many are new. Events that were accepted
// before change nothing. An error for which Poison is true means that one of the events
// can never be accepted.
func (s *Store) Accept(ctx context.Context, records []event.Record) (created int, err error) {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b event.Record) int { return strings.Compare(a.ID, b.ID) })
	var in input
	for _, record := range records {
		if err := in.add(record); err != nil {
			return 0, err
		}
	}
	err = postgres.Retry(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, acceptSQL, in.ids, in.events, in.users, in.types, in.payloads, in.times, in.traces).Scan(&created)
	})
	return created, postgres.Wrap("accept events", err)
}

// Poison reports whether the event itself caused err, so that a retry cannot help.
func Poison(err error) bool {
	return postgres.BadData(err) || errors.Is(err, event.ErrUnreadable)
}

// input holds the columns of a batch.
type input struct {
	ids, events            []uuid.UUID
	users, types, payloads []string
	times                  []time.Time
	traces                 []string
}

func (in *input) add(r event.Record) error {
	eventID, err := uuid.Parse(r.ID)
	if err != nil {
		return fmt.Errorf("%w: event_id %q is not a UUID", event.ErrUnreadable, r.ID)
	}
	notices, err := notices(r)
	if err != nil {
		return err
	}
	for _, n := range notices {
		// The same when it is accepted once more, because that is lost: receivers recognize it.
		in.ids = append(in.ids, id.Derived(r.OccurredAt, cmp.Or(n.of, eventID.String()), n.userID))
		in.events = append(in.events, eventID)
		in.users = append(in.users, n.userID)
		in.types = append(in.types, r.Type)
		in.payloads = append(in.payloads, string(n.payload))
		in.times = append(in.times, r.OccurredAt)
		in.traces = append(in.traces, r.Traceparent)
	}
	return nil
}
