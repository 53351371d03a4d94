// Package fn is what every function is made of. A function is an http.Handler:
// requests, CloudEvents and ticks all come in as HTTP, and that is its whole
// contract with every platform. Here are its description (Function), what it is
// given (Env), how it takes a typed request (Handle), a CloudEvent
// (HandleEvents) and a tick (Env.Tick). Runtime hosts functions in a process.
package fn

import (
	"net/http"
	"slices"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/rights"
)

// Store is a part that keeps state.
type Store string

// The stores that functions may need.
const (
	Postgres Store = "postgres"
	Redis    Store = "redis"
	NATS     Store = "nats"
	// RabbitMQ is needed only where TRANSFER_BROKER says so.
	RabbitMQ Store = "rabbitmq"
)

// Place is somewhere outside of the system.
type Place string

// The places that functions may send requests to; network policies let no other do so.
const (
	// Allocator is Agones', which finds game servers.
	Allocator Place = "allocator"
	// Webhooks are the endpoints of NOTIFICATION_CHANNEL=webhook.
	Webhooks Place = "webhooks"
)

// Function describes one function. The registry in package functions lists all
// of them; the gateway's routes, the manifests and the docs are derived from it.
type Function struct {
	Name    string
	Summary string
	// New registers what the function answers to. It must not connect to
	// anything: stores connect when they are first used.
	New func(*Env) error
	// Routes are reachable through the gateway; all others are internal.
	Routes []Route
	// Events are the CloudEvents types that the gateway sends here from EventsPath.
	Events []string
	// Schedule is how often the function is ticked; 0 for one that has no ticks.
	Schedule time.Duration
	// Wakes are the functions that it nudges after a commit. It can wake no others,
	// and network policies let it reach no others.
	Wakes  []string
	Stores []Store
	// Optional are stores that it uses where they are there and does without where
	// they are not; readiness does not ask for them.
	Optional []Store
	// Reaches are the places outside of the system that it sends requests to.
	Reaches []Place
	// Domains are the database schemas that the function works on; entitlement_cleanup
	// is that of entitlement, in a role that may do more.
	Domains []string
	// Rights are what it may do in Redis and NATS, where each function has a user of its
	// name.
	Rights rights.Rights
	// Timeout bounds one request, Concurrency the requests of one instance at once.
	Timeout     time.Duration
	Concurrency int
	MinScale    int
	MaxScale    int
	// Public functions take requests from any client; the others trust only the
	// gateway's signed statement.
	Public bool
}

// EventsPath takes CloudEvents from outside.
const EventsPath = "/v1/events"

// Route is one operation of the public API.
type Route struct {
	ID      string // of the operation, for OpenAPI
	Method  string
	Path    string // in ServeMux syntax
	Summary string
	// Description says what the route promises, for OpenAPI.
	Description string
	// Roles of which the caller must have one; if empty, any signed-in caller may.
	Roles []string
	// ShownTo are the roles of which a caller must have one for the route to exist: it
	// answers all others 404. If empty, it exists for everybody.
	ShownTo []string
	// Self routes are about the caller's own data, so the gateway finds out their user
	// id. Callers with one of AnyUserRoles reach the data of any user.
	Self         bool
	AnyUserRoles []string
	// Refuses are the statuses of errors that are the route's own, such as 404, beside
	// those that every route of its kind can be answered with; for OpenAPI.
	Refuses []int
	// Bodyless routes take no body, whatever their method.
	Bodyless bool
	// Stream routes answer for as long as the function's timeout, bit by bit.
	Stream bool
	// Quota bounds how often one caller may use the route, where that is costly,
	// below what all their requests together may be.
	Quota Quota
	// Page routes answer browsers with HTML, and are not part of the API. People who are not
	// signed in are sent to sign in.
	Page bool
	// Debug routes exist only where DEBUG_ENDPOINTS is true.
	Debug bool
}

// Quota is a rate for each caller; the zero Quota is none.
type Quota struct {
	PerMinute int
	Burst     int
}

// Pattern is the route in ServeMux syntax.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Admit returns auth.ErrForbidden to callers without one of Roles, and errNoRoute to
// callers without one of ShownTo, from whom the route is hidden.
func (r Route) Admit(caller auth.Identity) error {
	if len(r.ShownTo) > 0 && !caller.Has(r.ShownTo...) {
		return errNoRoute
	}
	if len(r.Roles) > 0 && !caller.Has(r.Roles...) {
		return auth.ErrForbidden
	}
	return nil
}

// NeedsUser reports whether the gateway must find out the caller's user id.
func (r Route) NeedsUser(caller auth.Identity) bool { return r.Self && !caller.Has(r.AnyUserRoles...) }

// MayReach reports whether the caller may see what belongs to userID.
func (r Route) MayReach(caller auth.Identity, userID string) bool {
	return caller.UserID != "" && caller.UserID == userID || caller.Has(r.AnyUserRoles...)
}

// needs reports whether the function cannot run without a store.
func (f Function) needs(store Store) bool { return slices.Contains(f.Stores, store) }

func (r Route) hasBody() bool {
	return !r.Bodyless && (r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch)
}
