// Package stream is the function that streams a user's notifications live, as server-sent
// events. The table is the source of truth: a nudge on NATS only says that it is worth
// reading, and a read every few seconds finds what no nudge announced. It is a function
// of its own because open streams use up concurrency.
package stream

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Route is the stream.
var Route = fn.Route{
	ID: "stream-my-notifications", Method: http.MethodGet, Path: "/v1/me/notifications/stream", Self: true, Stream: true,
	Summary: "Follow the caller's notifications",
	Description: "Server-sent events: `event: notification`, with the notification as data, for each one that is SENT from now on. " +
		"Connect again with Last-Event-ID, as EventSource does by itself, and nothing is missed; some come again, with the same notification_id. " +
		"With ticket_id also `event: ticket`, with the ticket as data: at once, and whenever it changes until it ends.",
	Quota:   fn.Quota{PerMinute: 60, Burst: 60},
	Refuses: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
}

// example is what a stream may send.
const example = `retry: 1500

id: n_01h455vb4pex5vsknk084sn02q
event: notification
data: {"notification_id":"n_01h455vb4pex5vsknk084sn02q","event_id":"019b9c68-4a40-7c61-8b0e-2f1d7f3c9a10","event_type":"EntitlementGranted","status":"SENT","attempt_count":1,"created_at":"2026-01-08T07:10:00.123Z","sent_at":"2026-01-08T07:10:00.126Z","read_at":null,"payload":{"event_type":"EntitlementGranted","user_id":"u_123","stock_keeping_unit":"item1","version":1}}

`

const (
	lookTimeout  = 5 * time.Second
	retryAfter   = time.Second
	eventName    = "notification"
	positionMark = "t_" // before a time, while there is no notification to resume after
)

type request struct {
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"Where to go on: the id of the last event that was received."`
	After       string `query:"last_event_id" maxLength:"64" doc:"The same, for clients that cannot send the header."`
	TicketID    string `query:"ticket_id" maxLength:"64" doc:"A ticket of the caller's to follow, too."`
}

type function struct {
	env   *fn.Env
	pool  *pgxpool.Pool
	store *notification.Store
	hub   *live.Hub
	queue *matchmaking.Store
	watch *watch
}

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	queue, _, err := queues.Open(e)
	if err != nil {
		return err
	}
	f := &function{e, pool, notification.NewStore(pool), e.Live(), queue, &watch{store: queue, followed: map[*followedTicket]reading{}}}
	fn.HandleStream(e, Route, example, f.open, f.follow)
	return nil
}

// following is one open stream.
type following struct {
	reader *notification.Follower
	begins string // the id of its start, for one that was not resumed
	nudges <-chan struct{}
	stop   func()
	ticket *followedTicket // nil when none is followed
}

func (f *function) open(ctx context.Context, in *request) (*following, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	userID := auth.From(ctx).UserID
	from, resumed, err := f.position(ctx, userID, cmp.Or(in.LastEventID, in.After))
	if err != nil {
		return nil, err
	}
	s := &following{reader: f.store.Follow(userID, from.Add(-notification.Overlap))}
	if in.TicketID != "" {
		if s.ticket, err = f.followTicket(ctx, userID, in.TicketID); err != nil {
			return nil, err
		}
	}
	// Listen before the first look, so that nothing falls between the two.
	if s.nudges, s.stop, err = f.hub.Listen(userID); err != nil {
		return nil, err
	}
	if resumed {
		return s, nil
	}
	// Skip the notifications that exist already.
	s.begins = positionMark + strconv.FormatInt(from.UnixMicro(), 10)
	for more := true; more && err == nil; {
		_, more, err = f.look(ctx, s)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// position returns the time that an event id stands for, or now and false when it stands
// for none or for a future one.
func (f *function) position(ctx context.Context, userID, id string) (time.Time, bool, error) {
	now, err := postgres.Now(ctx, f.pool)
	if err != nil {
		return now, false, err
	}
	if mark, ok := strings.CutPrefix(id, positionMark); ok {
		micros, err := strconv.ParseInt(mark, 10, 64)
		// Postgres knows no time as far back as some numbers.
		if at := time.UnixMicro(max(micros, 0)); err == nil && !at.After(now) {
			return at, true, nil
		}
	} else if id != "" {
		sent, err := f.store.SentAt(ctx, userID, id)
		if err == nil || !errors.Is(err, notification.ErrNotFound) {
			return sent, true, err
		}
	}
	return now, false, nil
}

func (f *function) follow(ctx context.Context, events *fn.Events, s *following) {
	defer s.stop()
	look := time.NewTicker(f.env.Settings.StreamLookEvery)
	defer look.Stop()
	// Streams that began together must not all reconnect together.
	lifetime := f.env.Settings.StreamLifetime
	end := time.NewTimer(lifetime - rand.N(lifetime/10))
	defer end.Stop()
	if s.ticket != nil {
		f.watch.put(s.ticket, s.ticket.opened)
		defer f.watch.drop(s.ticket)
	}
	err := events.Begin(s.begins, retryAfter+rand.N(retryAfter))
	for news, ticket := true, true; err == nil; {
		if news {
			err = f.sendNew(ctx, events, s)
		}
		if err == nil && ticket {
			err = f.tellTicket(ctx, events, s.ticket)
		}
		news, ticket = true, true
		select {
		case <-s.nudges:
		case <-look.C:
			err = cmp.Or(err, events.KeepAlive())
			ticket = false
		case <-s.ticket.due():
			news = false
		case <-end.C:
			return
		case <-f.env.Life().Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendNew sends new notifications. Its error means that the reader is gone; a database that
// is away ends no stream, since the next look finds everything.
func (f *function) sendNew(ctx context.Context, events *fn.Events, s *following) error {
	for {
		fresh, more, err := f.look(ctx, s)
		if err != nil {
			if ctx.Err() == nil {
				f.env.Logger().WarnContext(ctx, "stream cannot look", "error", err.Error())
			}
			return nil
		}
		for _, n := range fresh {
			if err := events.Send(n.ID, eventName, n); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

func (f *function) look(ctx context.Context, s *following) ([]notification.Notification, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.reader.Next(ctx, cursor.MaxPage)
}
