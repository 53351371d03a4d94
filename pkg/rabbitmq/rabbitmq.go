// Package rabbitmq carries events over RabbitMQ: a publisher for the relay (with
// confirms, and mandatory, so that what no queue takes does not count as published)
// and a consumer that acknowledges by hand. The exchange is a durable topic
// exchange, the routing key is the event's subject, and each consumer has a durable
// queue of its own. Messages carry the headers that they have on JetStream.
//
// RabbitMQ does not know a message's id: what is published twice comes twice, and
// consumers know it by event_id.
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

// Exchange takes all events.
const Exchange = "miniserver.events"

const (
	connectTimeout = 3 * time.Second
	// heartbeat is how often the two sides show that they are alive; a connection is
	// given up after twice that.
	heartbeat = 10 * time.Second
	// callTimeout bounds what one Fetch or Ready asks of the broker.
	callTimeout = 5 * time.Second
	// lookAgain is how long what was made is taken to be there: somebody may remove it.
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
		// A message that cannot be stored now comes back for as long as that lasts.
		// RabbitMQ 4 drops it after 20 times unless there is another limit, and RabbitMQ 3
		// takes a negative one, which means none to RabbitMQ 4, for 0.
		arguments["x-delivery-limit"] = int32(math.MaxInt32)
	}
	return arguments
}

// Client is one connection. It is made when it is first needed, and anew by the
// next use after it broke.
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

// New returns a client that has not connected yet; name is shown to operators, and
// queue is what its consumers make.
func New(url, name string, queue Queue) *Client { return &Client{url: url, name: name, queue: queue} }

// Ready connects when needed, makes the exchange when it is missing, and returns nil
// when the broker takes messages.
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

// errFull is RabbitMQ's alarm. It tells only connections that publish.
var errFull = errors.New("rabbitmq takes no messages: its memory or disk is full")

// full is closed while the broker takes no messages.
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
		return nil, nil, err // it would break the connection of the others
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

// ensure makes something on the broker that is not there yet. One that is there with
// other arguments is the operator's choice.
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

// forget makes the next use look at once for what may have been removed.
func (c *Client) forget(what string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.made, what)
}

// Close ends the connection. What was not acknowledged comes again.
func (c *Client) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn != nil {
		_ = c.conn.CloseDeadline(time.Now().Add(callTimeout)) // it ends with its socket in any case
		_ = c.socket.Close()
	}
}
