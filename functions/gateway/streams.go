package gateway

import (
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/limit"
)

// streamShare limits how much of a gateway's concurrency streams may use: one in so many
// places. The platform counts an open stream like any request, so without a limit streams
// would leave no places for requests.
const streamShare = 2

// streamPlaces is how many streams this process may hold.
func (g *gateway) streamPlaces() int {
	places := g.env.Settings.StreamsPerProcess
	if g.env.Together() {
		return places // nothing counts the requests of one process with all functions
	}
	return min(places, g.env.Function.Concurrency/streamShare)
}

var errStreamsFull = &fault.Error{
	Kind: fault.Unavailable, Code: "streams_full", RetryAfter: streamRetry,
	Detail: "This server holds as many live streams as it may; connect again after Retry-After, and read GET /v1/me/notifications meanwhile.",
}

// streamRetry is after how long a retry may reach another process, or find room.
const streamRetry = 5 * time.Second

// openStream takes a place for a stream in this process, and one of the caller's own
// on all instances together. leave gives both back.
func (g *gateway) openStream(r *http.Request, caller auth.Identity) (leave func(), err error) {
	select {
	case g.streams <- struct{}{}:
	default:
		return nil, errStreamsFull
	}
	most := g.env.Settings.StreamsPerUser
	giveBack, ok := g.limiter.Hold(r.Context(), limit.Places{Name: "streams", Most: most}, caller.UserID)
	if !ok {
		<-g.streams
		err := fault.New(fault.RateLimited, "too_many_streams",
			"You have %d live streams open, which is as many as you may; close one, in another tab or on another device, and connect again.", most)
		err.RetryAfter = streamRetry
		return nil, err
	}
	return func() {
		giveBack()
		<-g.streams
	}, nil
}
