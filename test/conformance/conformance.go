// Package conformance tests what every way of running the functions must do alike. An
// adapter starts them, on a platform or on the nearest thing to it on one machine; Run
// sends requests, events and ticks, cuts and hangs their stores, terminates them, and
// records what it saw. The stores are real.
//
// It is for tests: nothing else may import it.
package conformance

import (
	"net/http"
	"testing"
	"time"
)

// Adapter is a way to run the functions.
type Adapter struct {
	Name string
	// Start starts functions of the registry, the gateway first if it is among them, and
	// returns without waiting until they answer. They are stopped when t ends. An adapter
	// with all functions in one process may start all of them.
	Start func(t testing.TB, environment map[string]string, functions ...string) Instance
	// Refuse runs the program with an environment that it must refuse, until it exits,
	// and returns its exit status and output.
	Refuse func(t testing.TB, environment map[string]string) (status int, printed string)
	// Ticked says that the suite ticks, not a schedule in the process.
	Ticked bool
	// Overrides are settings that the platform requires.
	Overrides map[string]string
	// Without are the checks that do not apply here, by name, with the reason.
	Without map[string]string
	// Quiet is how long the platform delays SIGTERM so that clients stop sending
	// requests. Meanwhile requests are accepted, and only readiness shows that the end is
	// near.
	Quiet time.Duration
	// Grace is how long the processes may take after SIGTERM; 0 for SHUTDOWN_GRACE of the
	// suite.
	Grace time.Duration
}

// Instance is running functions.
type Instance interface {
	// RoundTrip sends a request to the gateway; the host of its URL is ignored.
	http.RoundTripper
	// Probe probes every process as the platform does, and returns the worst status.
	Probe(Probe) (status int, err error)
	// Tick ticks a function as the platform does; only a tick that was done returns no
	// error.
	Tick(function string) error
	// Addresses are where the processes listen, as host:port.
	Addresses() []string
	// Terminate sends SIGTERM to every process.
	Terminate()
	// Wait returns an error unless all processes end within this time with status 0.
	Wait(within time.Duration) error
}

// Probe is a platform's question about a process.
type Probe int

// The probes.
const (
	Liveness Probe = iota
	Readiness
)

// Run checks an adapter, each check in a subtest. Checks that only send requests share an
// instance; those that end or starve it have their own.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	for name := range a.Without {
		if !named(name) {
			t.Errorf("there is no check %q", name)
		}
	}
	results := newResults(t, a.Name)
	shared := newScene(t, a)
	shared.start("gateway", "account", "grant", "revoke", "entitlements", "relay", "notify", "deliver", "inbox", "stream")
	for _, c := range checks {
		if why, without := a.Without[c.name]; without {
			results.put(c.name, outcome{Without: why})
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := shared.in(t)
			if c.alone {
				s = newScene(t, a)
			}
			results.put(c.name, outcome{Failed: true}) // unless the check returns
			saw := c.run(s)
			if !t.Failed() {
				results.put(c.name, outcome{Saw: saw})
			}
		})
	}
}

// check is one promise; run returns what it saw, in a few words.
type check struct {
	name  string
	alone bool // has an instance of its own
	run   func(*scene) string
}

// checks are in the table's order.
var checks = []check{
	{"request and replay", false, (*scene).request},
	{"refused request", false, (*scene).refused},
	{"unknown path", false, (*scene).unknownPath},
	{"path that is not clean", false, (*scene).uncleanPath},
	{"CloudEvent, binary", false, (*scene).binary},
	{"CloudEvent, structured", false, (*scene).structured},
	{"ticks carry a grant to SENT", false, (*scene).ticks},
	{"path and query as sent", false, (*scene).path},
	{"headers", false, (*scene).headers},
	{"cookies", false, (*scene).manyCookies},
	{"empty bodies", false, (*scene).emptyBodies},
	{"body too large", false, (*scene).tooLarge},
	{"live stream", false, (*scene).stream},
	{"probes follow the stores", true, (*scene).probes},
	{"deadline", true, (*scene).deadline},
	{"drain on SIGTERM", true, (*scene).drain},
	{"SIGTERM ends streams", true, (*scene).streamEnds},
	{"unknown FUNCTION", true, (*scene).unknownFunction},
	{"malformed setting", true, (*scene).malformed},
}

func named(name string) bool {
	for _, c := range checks {
		if c.name == name {
			return true
		}
	}
	return false
}
