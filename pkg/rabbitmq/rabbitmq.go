// Package rabbitmq publishes and consumes events over RabbitMQ: a publisher for the relay
// (with confirms, and mandatory, so that a message without a queue does not count as
// published) and a consumer with manual acknowledgement. The exchange is a durable topic
// exchange, the routing key is the event's subject, and each consumer has its own durable
// queue. Messages have the same headers as on JetStream.
//
// RabbitMQ does not deduplicate by a message's id; consumers deduplicate by event_id.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Exchange receives all events.
const Exchange = "miniserver.events"

const (
	connectTimeout = 3 * time.Second
	// heartbeat is the interval of heartbeats; a connection is abandoned after twice
	// that.
	heartbeat = 10 * time.Second
	// callTimeout bounds the broker's calls of one Fetch or Ready.
	callTimeout = 5 * time.Second
	// lookAgain is how long a queue or exchange is assumed to exist: operators may remove
	// it.
	lookAgain = 30 * time.Second
)

// Queue is the type of new queues.
type Queue string

// Quorum queues are replicated to the nodes of a cluster; classic ones are on one.
const (
	Quorum  Queue = amqp.QueueTypeQuorum
	Classic Queue = amqp.QueueTypeClassic
)

func (q Queue) arguments() amqp.Table {
	arguments := amqp.Table{amqp.QueueTypeArg: string(q)}
	if q == Quorum {
		// A message that cannot be stored now is redelivered for as long as that lasts.
		// RabbitMQ 4 drops it after 20 deliveries unless there is another limit. A negative
		// limit means none to RabbitMQ 4, but 0 to RabbitMQ 3.
		arguments["x-delivery-limit"] = int32(math.MaxInt32)
	}
	return arguments
}

// Client is one connection. It connects on first use, and again on the next use after the
// connection broke.
type Client struct {
	url   string
	name  string
	queue Queue

	mutex   sync.Mutex
	conn    *amqp.Connection
	socket  net.Conn             // below conn
	blocked chan struct{}        // closed while the broker takes no messages on conn
	made    map[string]time.Time // exchanges and queues
}

// New returns an unconnected client; operators see name, and queue is the type of its
// consumers' queues.
func New(url, name string, queue Queue) *Client { return &Client{url: url, name: name, queue: queue} }

// Ready connects if needed, creates a missing exchange, and returns nil when the broker
// accepts messages.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, done, err := c.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	if closed(c.full()) {
		return errFull
	}
	return c.ensureExchange(conn)
}

// errFull is RabbitMQ's alarm, which only publishing connections receive.
var errFull = errors.New("rabbitmq takes no messages: its memory or disk is full")

// full returns a channel that is closed while the broker accepts no messages.
func (c *Client) full() <-chan struct{} {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.blocked
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// use returns the connection. Until done is called, the end of ctx breaks it: the
// library's calls know no deadline, and a broker that hangs must not hold a worker
// longer than its lease.
func (c *Client) use(ctx context.Context) (conn *amqp.Connection, done func() bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err // a canceled ctx would break the others' connection
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn == nil || c.conn.IsClosed() {
		if err := c.connect(); err != nil {
			return nil, nil, err
		}
	}
	socket := c.socket
	return c.conn, context.AfterFunc(ctx, func() { _ = socket.Close() }), nil
}

func (c *Client) connect() error {
	var socket net.Conn
	conn, err := amqp.DialConfig(c.url, amqp.Config{
		Heartbeat:  heartbeat,
		Properties: amqp.Table{"connection_name": c.name},
		Dial: func(network, address string) (net.Conn, error) {
			var err error
			socket, err = amqp.DefaultDial(connectTimeout)(network, address)
			return socket, err
		},
	})
	if err != nil {
		return fmt.Errorf("connect to rabbitmq: %w", err)
	}
	c.conn, c.socket, c.blocked, c.made = conn, socket, make(chan struct{}), map[string]time.Time{}
	blocking := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	go func() { // ends with the connection
		for b := range blocking {
			c.mutex.Lock()
			if c.conn == conn && b.Active != closed(c.blocked) {
				if b.Active {
					close(c.blocked)
				} else {
					c.blocked = make(chan struct{})
				}
			}
			c.mutex.Unlock()
		}
	}()
	return nil
}

func (c *Client) ensureExchange(conn *amqp.Connection) error {
	return c.ensure(conn, Exchange, func(channel *amqp.Channel, passive bool) error {
		declare := channel.ExchangeDeclare
		if passive {
			declare = channel.ExchangeDeclarePassive
		}
		return declare(Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	})
}

// ensure creates something missing on the broker. An existing one with other arguments is
// the operator's choice.
func (c *Client) ensure(conn *amqp.Connection, what string, declare func(channel *amqp.Channel, passive bool) error) error {
	c.mutex.Lock()
	made := c.conn == conn && time.Since(c.made[what]) < lookAgain
	c.mutex.Unlock()
	if made {
		return nil
	}
	for _, passive := range []bool{true, false} {
		// A refusal closes its channel.
		channel, err := conn.Channel()
		if err != nil {
			return fmt.Errorf("rabbitmq: %w", err)
		}
		err = declare(channel, passive)
		var refused *amqp.Error
		if errors.As(err, &refused) && refused.Code == amqp.NotFound && passive {
			continue
		}
		if err != nil {
			return fmt.Errorf("rabbitmq: declare %s: %w", what, err)
		}
		if err := channel.Close(); err != nil {
			return fmt.Errorf("rabbitmq: %w", err)
		}
		break
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn == conn {
		c.made[what] = time.Now()
	}
	return nil
}

// forget makes the next use check at once whether it still exists.
func (c *Client) forget(what string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.made, what)
}

// Close ends the connection. Unacknowledged messages are redelivered.
func (c *Client) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn != nil {
		_ = c.conn.CloseDeadline(time.Now().Add(callTimeout)) // the socket is closed in any case
		_ = c.socket.Close()
	}
}
