package event

import "time"

// Delivery is a message from a broker, which redelivers it until it is acknowledged or
// terminated.
type Delivery struct {
	Message   Message
	Headers   map[string][]string // as received
	Delivered uint64              // number of deliveries, from 1; 0 if the broker does not count
	Acknowledger
}

// Acknowledger settles a message with its broker. An error means that the broker may not
// know, and may redeliver the message.
type Acknowledger interface {
	// Ack marks the message as handled. Call it after the commit.
	Ack() error
	// Again asks for redelivery after a while.
	Again(after time.Duration) error
	// Terminate asks that the message is never redelivered.
	Terminate(reason string) error
}
