// Package brokertest tests what publishers and consumers of events promise, whichever broker
// they use. A package that implements both runs it on a real broker:
//
//	func TestContract(t *testing.T) { brokertest.Run(t, open) }
package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Consumer is what functions consume events with.
type Consumer interface {
	// Fetch returns up to limit messages that are waiting, none if there are none. Its
	// error is fault.Unavailable.
	Fetch(ctx context.Context, limit int) ([]event.Delivery, error)
	// Caught reports whether every message that is older than age was dealt with.
	Caught(ctx context.Context, age time.Duration) (bool, error)
}

// Broker is an empty broker.
type Broker struct {
	Publisher outbox.Publisher
	Consumer  Consumer // of all events with Subject
	Subject   string
	// Counts says that the broker counts the deliveries of a message. Others only know
	// whether it is the first.
	Counts bool
	// Away are a publisher and a consumer for a broker that cannot be reached.
	Away struct {
		Publisher outbox.Publisher
		Consumer  Consumer
	}
}

// promises are the contract, one test each.
var promises = map[string]func(*suite){
	"what is published arrives as it was":          (*suite).arrivesAsItWas,
	"headers are the same on every broker":         (*suite).headers,
	"without a trace there are no headers of one":  (*suite).withoutTrace,
	"keys are opaque":                              (*suite).keysAreOpaque,
	"a fetch is in order and within its limit":     (*suite).fetchWithinLimit,
	"what is dealt with does not come again":       (*suite).dealtWith,
	"what is asked for again comes after the time": (*suite).again,
	"a message comes without a limit":              (*suite).withoutLimit,
	"what nobody takes is not published":           (*suite).nobodyTakes,
	"a caller without time breaks nothing":         (*suite).withoutTime,
	"caught up is who has dealt with what is old":  (*suite).caughtUp,
	"a broker that is away is said to be":          (*suite).away,
}

// Run checks every promise, each on a new broker from open.
func Run(t *testing.T, open func(t *testing.T) Broker) {
	t.Helper()
	for name, check := range promises {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &suite{t, open(t)}
			s.fetch(0) // creates the stream or queue
			check(s)
		})
	}
}

type suite struct {
	*testing.T
	Broker
}

const traceID = "0af7651916cd43dd8448eb211c80319c"

// message is a new event about key.
func (s *suite) message(key string) event.Message {
	return event.Message{
		ID: uuid.Must(uuid.NewV7()).String(), Type: "miniserver.transfer.v1.TransferCompleted", Source: "/miniserver/transfer", Subject: s.Subject,
		Key: key, Time: time.Date(2026, 1, 8, 7, 10, 0, 123456000, time.UTC), Traceparent: "00-" + traceID + "-b7ad6b7169203331-01",
		Data: []byte{0, 1, 255},
	}
}

func (s *suite) messages(n int) []event.Message {
	list := make([]event.Message, n)
	for i := range list {
		list[i] = s.message("k")
	}
	return list
}

// publish publishes messages, and fails the test unless all are stored.
func (s *suite) publish(messages ...event.Message) {
	s.Helper()
	results := s.Publisher.Publish(s.Context(), messages)
	if len(results) != len(messages) {
		s.Fatalf("%d results for %d messages", len(results), len(messages))
	}
	for i, err := range results {
		if err != nil {
			s.Fatalf("message %d: %v", i, err)
		}
	}
}

// fetch waits until want messages have come, in any number of batches, and fails the test
// if more do.
func (s *suite) fetch(want int) []event.Delivery {
	s.Helper()
	var all []event.Delivery
	kit.Eventually(s, "the published messages come", func() bool {
		got, err := s.Consumer.Fetch(s.Context(), 500)
		kit.Must(s, err)
		all = append(all, got...)
		return len(all) >= want
	})
	if len(all) != want {
		s.Fatalf("%d messages came, want %d", len(all), want)
	}
	return all
}
