package event

import "time"

// Delivery is a message that a broker handed over and that comes again until it is
// acknowledged or terminated.
type Delivery struct {
	Message   Message
	Headers   map[string][]string // as they came
	Delivered uint64              // how often it came, from 1; 0 when the broker does not say
	Acknowledger
}

// Acknowledger tells a broker what became of a message. An error means that the
// broker may not know it, and that the message may come again.
type Acknowledger interface {
	// Ack says that the message is dealt with for good. Call it after the commit.
	Ack() error
	// Again asks for the message once more after a while.
	Again(after time.Duration) error
	// Terminate says that the message is never to come again.
	Terminate(reason string) error
}
