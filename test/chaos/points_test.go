//go:build chaos

package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// point is where a fault can hit exactly: a link of the process carries a text then. What a
// process asks for is carried on, so it happens; but the process dies or sleeps, hears of it
// late, or never.
type point struct{ name, store, text string }

// points are where one store changes and others do not know of it yet. Statements are named
// by what they contain, and each of them is a transaction; process two sends their text.
// Scripts are named by their keys.
var points = []point{
	{"a grant is committed", "postgres", "INSERT INTO entitlement.entitlements"},
	{"a transfer's key is taken", "postgres", "integration.take_key"},
	{"money is moved", "postgres", "core.move_money"},
	{"rows are claimed", "postgres", "died_with_others"},
	{"rows are finished", "postgres", "finished_at = now(), last_error = NULL"},
	{"events become notifications", "postgres", "INSERT INTO notification.processed_events"},
	{"a transfer is settled", "postgres", "INSERT INTO integration.processed_events"},
	{"an event is published", "nats", "HPUB "},
	{"a publication is acknowledged", "nats", `{"stream":"`},
	{"a message is acknowledged", "nats", "PUB $JS.ACK."},
	{"a ticket joins", "redis", "mm:idemp:{"},
	{"tickets are matched", "redis", "4\r\n$17\r\nmm:queue:{casual}"},
	{"a match's event is acknowledged", "redis", "xack"},
}

const (
	// pointWithin is how long a fault waits for its point.
	pointWithin = 3 * time.Second
	// eachPoint is how often a run of an hour hits each at least.
	eachPoint = 10
)

// errMissed is why a fault did not happen: nothing came to its point.
var errMissed = errors.New("nothing came to the point")

// atPoint is a fault that hits process two at any point.
func (w *lone) atPoint(name string, short, length time.Duration, hit func(p *process) (lose bool, err error), end func(p *process) error) fault {
	return fault{name, short, length, func(r *rand.Rand) (func() error, error) {
		at, p := points[r.IntN(len(points))], w.gateways[1]
		var failed error
		met, forget := p.links[at.store].When(at.text, func() (lose bool) { lose, failed = hit(p); return lose })
		select {
		case <-met:
		case <-time.After(pointWithin):
			if forget() {
				return nil, errMissed
			}
			<-met
		}
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.hits[at.name]++
		return func() error { return end(p) }, failed
	}}
}

// processPointFaults happen to process two. Nothing else happens to a process meanwhile.
func (w *lone) processPointFaults() []fault {
	return []fault{
		w.atPoint("process killed at a point", 0, time.Second,
			func(p *process) (bool, error) { return false, p.kill() }, (*process).start),
		w.atPoint("process paused at a point, past its leases", pastLease, pastLease+time.Second,
			func(p *process) (bool, error) { return false, p.child.Pause() },
			func(p *process) error { return p.child.Resume() }),
	}
}

// linkPointFaults happen to one connection of process two.
func (w *lone) linkPointFaults() []fault {
	nothing := func(*process) error { return nil }
	return []fault{
		w.atPoint("the answer lost at a point", 0, 0, func(*process) (bool, error) { return true, nil }, nothing),
		w.atPoint("held back at a point, past leases", 0, 0, func(*process) (bool, error) { kit.Pause(pastLease); return false, nil }, nothing),
	}
}

// pointsHit says how often each point was hit, and which of them too rarely.
func (j *journal) pointsHit() (text string, rare []string) {
	for _, at := range points {
		text += fmt.Sprintf(" %d × %s,", j.hits[at.name], at.name)
		if j.hits[at.name] < eachPoint {
			rare = append(rare, at.name)
		}
	}
	return strings.TrimSuffix(text, ","), rare
}
