// Package fn is what every function is made of. A function is an http.Handler:
// requests, CloudEvents and ticks all come in as HTTP, and that is its whole
// contract with every platform. Here are its description (Function), what it is
// given (Env), how it takes a typed request (Handle), a CloudEvent
// (HandleEvents) and a tick (Env.Tick), and how it wakes the next one.
package fn

import (
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

// Store is a part that keeps state.
type Store string

// The stores that functions may need.
const (
	Postgres Store = "postgres"
	Redis    Store = "redis"
	NATS     Store = "nats"
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
	Stores   []Store
	// Domain is the database schema that the function works on, if any.
	Domain string
	// Timeout bounds one request, Concurrency the requests of one instance at once.
	Timeout     time.Duration
	Concurrency int
	MinScale    int
	MaxScale    int
	// Public functions take requests from anybody; the others believe only the
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
	// Description says what it promises, for OpenAPI.
	Description string
	// Roles of which the caller must have one; none: any caller who is known.
	Roles []string
	// Debug routes exist only where DEBUG_ENDPOINTS is true.
	Debug bool
}

// Pattern is the route in ServeMux syntax.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Admit returns auth.ErrForbidden to callers who may not use the route.
func (r Route) Admit(caller auth.Identity) error {
	if len(r.Roles) > 0 && !caller.Has(r.Roles...) {
		return auth.ErrForbidden
	}
	return nil
}

func (r Route) hasBody() bool {
	return r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
}
