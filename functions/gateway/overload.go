package gateway

import (
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// desk has places for the requests of one function that this process works on at once.
// What finds none is refused before it costs anything: under more load than a machine can
// do, each request that waits makes all others later, until none is answered in time. Each
// function has its own desk, so that one that hangs takes no places from others.
type desk chan struct{}

// patience is how long a request that was admitted waits for a place.
const patience = 100 * time.Millisecond

var errOverloaded = &fault.Error{
	Kind: fault.Overloaded, Code: "overloaded", RetryAfter: time.Second,
	Detail: "This server has more requests than it can answer soon; nothing was done. Send the same request again after Retry-After.",
}

// enter takes a place, or returns errOverloaded.
func (d desk) enter() error {
	select {
	case d <- struct{}{}:
		return nil
	default:
		return errOverloaded
	}
}

// enterAgain is enter for a request that was admitted: refusing it now would waste what it
// has cost.
func (d desk) enterAgain() error {
	if d.enter() == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case d <- struct{}{}:
		return nil
	case <-timer.C:
		return errOverloaded
	}
}

func (d desk) leave() { <-d }

// admitAt is admit while places has one. It is given back then: a body that comes slowly,
// and a stream, must hold none.
func (g *gateway) admitAt(places desk, w http.ResponseWriter, r *http.Request, route fn.Route) (auth.Identity, error) {
	if err := places.enter(); err != nil {
		return auth.Identity{}, err
	}
	defer places.leave() // also after a panic, or the places would be used up in time
	return g.admit(w, r, route)
}
