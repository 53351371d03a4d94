// Package ticket is the function through which players join a queue, see their ticket,
// and leave.
package ticket

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/spans"
)

// The routes: joining, the caller's tickets, one of them, and leaving.
var (
	Join = fn.Route{
		ID: "join-queue", Method: http.MethodPost, Path: "/v1/matchmaking/queues/{mode}/tickets", Self: true,
		Refuses: []int{http.StatusNotFound, http.StatusConflict},
		Summary: "Join a queue",
		Description: "Gives a ticket that waits until it is matched, cancelled or expires. By default the modes are `casual`, first come, first served, " +
			"and `rank`, which pairs by attributes.skill (0 to 10000) within a window that widens, and never two whose attributes.region differ. " +
			"idempotency_key names the request: the same one again gets the same answer as long as the ticket can be read. One ticket a user and mode waits.",
		// Each request leaves a ticket in Redis for minutes.
		Quota: fn.Quota{PerMinute: 60, Burst: 100},
	}
	List = fn.Route{
		ID: "list-my-tickets", Method: http.MethodGet, Path: "/v1/matchmaking/tickets", Self: true,
		Summary:     "List the caller's tickets",
		Description: "The latest of each mode, until 5 minutes after it would have expired, or 1 after it was cancelled.",
	}
	Get = fn.Route{
		ID: "get-ticket", Method: http.MethodGet, Path: "/v1/matchmaking/tickets/{ticket_id}", Self: true,
		Refuses: []int{http.StatusNotFound},
		Summary: "Read a ticket",
		Description: "QUEUED with its position, an estimate, and why it is not matched yet; MATCHED with the match, the peers and the session; CANCELLED or EXPIRED. " +
			"To follow it, open GET /v1/me/notifications/stream?ticket_id=…",
	}
	Cancel = fn.Route{
		ID: "cancel-ticket", Method: http.MethodDelete, Path: "/v1/matchmaking/tickets/{ticket_id}", Self: true,
		Refuses:     []int{http.StatusNotFound, http.StatusConflict},
		Summary:     "Leave a queue",
		Description: "May be sent any number of times; an expired ticket stays EXPIRED. A cancelled one can be read for a minute more. A MATCHED ticket stays so, and the answer is 409.",
	}
)

type function struct {
	store   *matchmaking.Store
	metrics *queues.Metrics
	wake    func() // wakes match
}

// New registers the function.
func New(e *fn.Env) error {
	store, metrics, err := queues.Open(e)
	if err != nil {
		return err
	}
	f := &function{store, metrics, e.Waker("match")}
	fn.Handle(e, Join, f.join, fn.Stores[matchmaking.Joined](http.StatusCreated))
	session := fn.Nullable[matchmaking.Ticket]("session")
	fn.Handle(e, List, f.list, session)
	fn.Handle(e, Get, f.get, session)
	fn.Handle(e, Cancel, f.cancel, session)
	return nil
}

type joinRequest struct {
	Mode   string `path:"mode" maxLength:"32" doc:"Which queue." example:"casual"`
	Header string `header:"Idempotency-Key" minLength:"1" doc:"May be left out; otherwise it must be the body's idempotency_key."`
	Body   struct {
		PartySize      int        `json:"party_size,omitempty" minimum:"1" maximum:"1" default:"1" doc:"Players come one by one."`
		Attributes     attributes `json:"attributes,omitempty" doc:"What players are told apart by: up to 16 numbers or strings, 1 KiB of JSON in all, such as region, skill, language and latency_bucket." example:"{\"region\":\"eu\",\"skill\":1500}"`
		IdempotencyKey string     `json:"idempotency_key,omitempty" doc:"Names this request. Up to 255 printable ASCII characters." example:"3b2f6a52"`
	}

	keys []string // values of the header
}

// attributes are validated by the domain, whose errors say more than a schema's; the
// schema only documents their bounds.
type attributes map[string]json.RawMessage

// Schema documents what the domain accepts.
func (attributes) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Extensions: map[string]any{
		"maxProperties": matchmaking.MaxAttributes,
		"propertyNames": map[string]any{"pattern": matchmaking.AttributeName},
		"additionalProperties": map[string]any{"anyOf": []any{
			map[string]any{"type": "number", "minimum": -matchmaking.MaxNumber, "maximum": matchmaking.MaxNumber},
			map[string]any{"type": "string", "maxLength": matchmaking.MaxAttributeBytes, "description": "Printable text; the length is in bytes."},
		}},
	}}
}

// Resolve keeps the values of the header, of which there may be several; huma calls it.
func (in *joinRequest) Resolve(c huma.Context) []error {
	c.EachHeader(func(name, value string) {
		if http.CanonicalHeaderKey(name) == idempotency.Header {
			in.keys = append(in.keys, value)
		}
	})
	return nil
}

func joinKey(body string, headers []string) (string, error) {
	if body == "" && len(headers) == 0 {
		return "", fault.New(fault.Malformed, "idempotency_key_missing",
			"Send an idempotency_key: a unique string of up to %d characters, and the same one on every retry.", idempotency.MaxKeyLength)
	}
	if len(headers) == 0 {
		return body, idempotency.CheckKey(body)
	}
	header, err := idempotency.ParseKey(headers)
	if err == nil && body != "" && body != header {
		err = fault.New(fault.Malformed, "idempotency_key_invalid", "The header Idempotency-Key is not the body's idempotency_key; leave the header out.")
	}
	return header, err
}

func (f *function) join(ctx context.Context, in *joinRequest) (*fn.Stored, error) {
	stored, err := f.joined(ctx, in)
	switch kind := fault.Of(err); {
	case err == nil && stored.Replayed == "":
		f.metrics.Joined(ctx, "joined")
		f.wake()
	case err == nil:
		f.metrics.Joined(ctx, "replayed")
	case kind == fault.Internal || kind == fault.Unavailable:
		f.metrics.Joined(ctx, "failed")
		if errors.Is(err, matchmaking.ErrFull) {
			f.wake() // what fills the queue may have expired
		}
	default:
		f.metrics.Joined(ctx, "refused")
	}
	return stored, err
}

func (f *function) joined(ctx context.Context, in *joinRequest) (*fn.Stored, error) {
	key, err := joinKey(in.Body.IdempotencyKey, in.keys)
	if err != nil {
		return nil, err
	}
	attributes, err := matchmaking.ParseAttributes(in.Body.Attributes)
	if err != nil {
		return nil, err
	}
	joined, replayed, err := f.store.Join(ctx, matchmaking.Join{
		UserID: auth.From(ctx).UserID, Mode: in.Mode, Key: key, Attributes: attributes, Traceparent: spans.Traceparent(ctx),
	})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(joined)
	return fn.NewStored(idempotency.Response{Status: http.StatusCreated, Body: body, Replayed: replayed}), err
}

type tickets struct {
	Tickets []matchmaking.Ticket `json:"tickets" nullable:"false" doc:"One a mode at most."`
}

func (f *function) list(ctx context.Context, _ *struct{}) (*struct{ Body tickets }, error) {
	list, err := f.store.Latest(ctx, auth.From(ctx).UserID)
	return &struct{ Body tickets }{tickets{list}}, err
}

type ticketRequest struct {
	TicketID string `path:"ticket_id" maxLength:"64" doc:"Which." example:"casual_01h455vb4pex5vsknk084sn02q"`
}

type ticketAnswer struct{ Body matchmaking.Ticket }

func (f *function) get(ctx context.Context, in *ticketRequest) (*ticketAnswer, error) {
	ticket, err := f.store.Get(ctx, auth.From(ctx).UserID, in.TicketID)
	return &ticketAnswer{ticket}, err
}

func (f *function) cancel(ctx context.Context, in *ticketRequest) (*ticketAnswer, error) {
	ticket, cancelled, err := f.store.Cancel(ctx, auth.From(ctx).UserID, in.TicketID)
	if cancelled {
		f.metrics.Ended(ctx, ticket.Mode, queues.Cancelled, 1)
	}
	return &ticketAnswer{ticket}, err
}
