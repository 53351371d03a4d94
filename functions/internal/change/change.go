// Package change is shared by the functions grant and revoke: it reads a change of an
// entitlement from a request or from a purchase event.
package change

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/spans"
)

// Apply is Store.Grant or Store.Revoke.
type Apply func(*entitlement.Store, context.Context, entitlement.Change, entitlement.Write) (idempotency.Response, error)

type request struct {
	fn.WriteHeaders
	Body entitlement.Change
}

// Register makes e answer route, and its purchase events, with apply.
func Register(e *fn.Env, route fn.Route, operation string, apply Apply) error {
	pool, err := e.Postgres("entitlement")
	if err != nil {
		return err
	}
	wake := e.Waker("relay")
	store := entitlement.NewStore(pool, e.Settings.IdempotencyRetention)

	change := func(ctx context.Context, c entitlement.Change, w entitlement.Write) (*fn.Stored, error) {
		w.Key.Caller = auth.From(ctx).Subject
		w.Traceparent = spans.Traceparent(ctx)
		response, err := apply(store, ctx, c, w)
		if err != nil {
			return nil, err
		}
		if !response.Replayed {
			wake()
		}
		return fn.NewStored(response), nil
	}

	fn.Handle(e, route, func(ctx context.Context, in *request) (*fn.Stored, error) {
		hash, err := fingerprint(operation, strconv.FormatInt(in.IfMatch(), 10), in.Body)
		if err != nil {
			return nil, err
		}
		return change(ctx, in.Body, entitlement.Write{
			Key:     idempotency.Key{Value: in.Key(), Hash: hash},
			IfMatch: in.IfMatch(),
		})
	}, fn.Stores[entitlement.Changed](http.StatusOK), fn.Versioned)

	fn.HandleEvents(e, func(ctx context.Context, event cloudevents.Event, data entitlement.Change) (*fn.Stored, error) {
		hash, err := fingerprint(operation, event.Type(), data)
		if err != nil {
			return nil, err
		}
		return change(ctx, data, entitlement.Write{
			Key:      idempotency.Key{Value: EventKey(event.Source(), event.ID()), Hash: hash},
			Purchase: true,
		})
	})
	return nil
}

// fingerprint covers the decoded change, not its bytes: every field of a change is
// required and no other is allowed, so both identify it equally.
func fingerprint(operation, condition string, c entitlement.Change) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return idempotency.Fingerprint(operation, condition, body)
}

// EventKey is the idempotency key of an event: its source and id, which together
// name it. Neither has a space once it is escaped, so no two events share a key;
// and no request can send a key with a tab.
func EventKey(source, id string) string {
	name := url.QueryEscape(source) + " " + url.QueryEscape(id)
	if len(name) > idempotency.MaxKeyLength {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return "event\t" + name
}
