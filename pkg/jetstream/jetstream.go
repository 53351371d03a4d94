// Package jetstream publishes and consumes events over NATS JetStream: a publisher for
// the relay and a durable pull consumer. Messages are CloudEvents in binary mode with
// lowercase headers, deduplicated by Nats-Msg-Id within the stream's window and by
// event_id downstream.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/singleflight"
)

const (
	connectTimeout  = 3 * time.Second
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond
	// A server that leaves two pings unanswered is gone: after 6 s another one of the cluster
	// is tried. (The library's interval is two minutes.)
	pingInterval    = 2 * time.Second
	pingsOut        = 2
	writeTimeout    = 3 * time.Second // to a server that reads nothing
	apiTimeout      = 5 * time.Second
	duplicateWindow = 2 * time.Minute
	// maxPending bounds what is published and not yet acknowledged, per process: two steps of
	// each outbox's relay, with the largest batches, stay below it.
	maxPending = 4096
	// ackTimeout is how long an acknowledgement may take. Then it counts as lost: the
	// message is published again, and its stream deduplicates it by its id.
	ackTimeout = 5 * time.Second
	// A server that answers pings may have lost the others of its cluster, and with them the
	// streams. If nothing that was asked in this time has an answer, another server is tried;
	// after twice the time, up to maxPatience, if that one does not answer either.
	silencePatience = 4 * time.Second
	maxPatience     = time.Minute

	// For how long, and how often, a stream is created whose store could not be.
	storeRetry    = 20 * time.Millisecond
	storePatience = 2 * time.Second
)

// Codes of JetStream's API errors.
const (
	codeClusterAway     = 10008 // this server does not reach the one that decides
	codeStoreNotCreated = 10049
	codeMessageTooLarge = 10054
	codeNotEnabled      = 10076 // the library's, too, for a server on which JetStream has ended
)

// Limits of the streams; the settings name them.
type Limits struct {
	MaxBytes int64
	MaxAge   time.Duration
	Replicas int
}

// Client is one connection and its streams. It connects on first use and reconnects for
// ever; a server of a cluster that is connected and answers nothing for 4 s is left, too.
type Client struct {
	url    string
	name   string
	limits Limits

	making singleflight.Group // of a stream, by subject

	mutex   sync.Mutex // held while connecting, but never during a JetStream call
	conn    *nats.Conn
	js      jetstream.JetStream
	streams map[string]bool // by subject: known to exist
	// answered is when the server last answered, began to be used, or was left; silent is
	// since when what was asked has no answer, zero if the last thing asked has one.
	answered, silent time.Time
	patience         time.Duration // for how long it may be silent
	reconnects       uint64        // of conn, when answered was set
}

// New returns an unconnected client; operators see name.
func New(url, name string, limits Limits) *Client {
	return &Client{url: url, name: name, limits: limits, streams: map[string]bool{}}
}

// Ready connects if needed and returns nil when JetStream answered.
func (c *Client) Ready(ctx context.Context) error {
	js, _, err := c.connected("")
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = js.AccountInfo(ctx)
	c.learn(began, err)
	return err
}

// jetstream connects if needed, and creates the stream of subject if it is missing. It
// ignores other streams, so that one that cannot be created blocks no other subject.
func (c *Client) jetstream(ctx context.Context, subject string) (jetstream.JetStream, error) {
	js, exists, err := c.connected(subject)
	if err != nil || exists {
		return js, err
	}
	made := c.making.DoChan(subject, func() (any, error) {
		began := time.Now()
		err := c.ensureStream(js, subject)
		if c.learn(began, err); err != nil {
			return nil, err
		}
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.streams[subject] = true
		return nil, nil
	})
	select {
	case result := <-made:
		return js, result.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connected connects if needed, and reports whether the stream of subject is known to
// exist.
func (c *Client) connected(subject string) (js jetstream.JetStream, exists bool, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.connect(); err != nil {
		return nil, false, err
	}
	if !c.conn.IsConnected() {
		return nil, false, fmt.Errorf("nats: %s", strings.ToLower(c.conn.Status().String()))
	}
	return c.js, c.streams[subject], nil
}

func (c *Client) connect() error {
	// A connection that the server refused (a changed password, say) stays closed; a new
	// one may be accepted.
	if c.conn != nil && !c.conn.IsClosed() {
		return nil
	}
	conn, err := nats.Connect(c.url, nats.Name(c.name), nats.CustomInboxPrefix(Inbox(userOf(c.url))),
		nats.Timeout(connectTimeout), nats.MaxReconnects(-1),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsOut), nats.FlusherTimeout(writeTimeout),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		// A password that is wrong now may be right later.
		nats.IgnoreAuthErrorAbort(),
		// The library would print them; important errors reach the caller.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		// Buffered messages would be sent much later, by a worker whose lease has
		// expired.
		nats.ReconnectBufSize(-1),
		// A store that lost its data comes back without our streams.
		nats.ReconnectHandler(func(*nats.Conn) { c.forgetStreams() }))
	if err != nil {
		return fmt.Errorf("connect to nats: %w", err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncTimeout(ackTimeout), jetstream.WithDefaultTimeout(apiTimeout))
	if err != nil {
		conn.Close()
		return fmt.Errorf("jetstream: %w", err)
	}
	c.conn, c.js = conn, js
	c.answered, c.silent, c.patience, c.reconnects = time.Now(), time.Time{}, silencePatience, 0
	return nil
}

func (c *Client) forgetStreams() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	clear(c.streams)
}

// learn concludes from how something ended that was asked at began whether the server is of
// use. It leaves one that is silent, if the cluster has others.
func (c *Client) learn(began time.Time, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.conn == nil || !c.conn.IsConnected() || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrMaxPayload) {
		return // the library looks for another server, or the server was not waited for
	}
	if n := c.conn.Stats().Reconnects; n != c.reconnects {
		c.answered, c.silent, c.reconnects = time.Now(), time.Time{}, n
	}
	if answers(err) {
		c.answered, c.silent, c.patience = time.Now(), time.Time{}, silencePatience
		return
	}
	if began.Before(c.answered) {
		began = c.answered
	}
	if c.silent.IsZero() {
		c.silent = began
	}
	if time.Since(c.silent) >= c.patience && len(c.conn.Servers()) > 1 {
		c.answered, c.silent, c.patience = time.Now(), time.Time{}, min(2*c.patience, maxPatience)
		// In the background, because it writes first. If it fails, the connection is closed,
		// and the next use makes a new one.
		go c.conn.ForceReconnect() //nolint:errcheck // see above
	}
}

// answers reports whether err, or nil, shows that JetStream has answered.
func answers(err error) bool {
	var answer *jetstream.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode != codeClusterAway && answer.ErrorCode != codeNotEnabled
	}
	return err == nil
}

// forget makes the next use of a subject look up its stream again.
func (c *Client) forget(subject string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.streams, subject)
}

// ensureStream has its own timeout, because several callers wait for it.
func (c *Client) ensureStream(js jetstream.JetStream, subject string) error {
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	err := createStream(ctx, js, jetstream.StreamConfig{
		Name:       StreamName(subject),
		Subjects:   []string{subject},
		Storage:    jetstream.FileStorage,
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardNew, // a full stream refuses; it never drops
		MaxAge:     c.limits.MaxAge,
		MaxBytes:   c.limits.MaxBytes,
		Replicas:   c.limits.Replicas,
		Duplicates: duplicateWindow,
	})
	// An existing stream with other limits is the operator's choice.
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("stream %s: %w", StreamName(subject), err)
	}
	return nil
}

// createStream retries while the server still removes the files of a stream of the same
// name: a delete answers before they are gone.
func createStream(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig) error {
	patience := time.After(storePatience)
	for {
		_, err := js.CreateStream(ctx, config)
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != codeStoreNotCreated {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-patience:
			return err
		case <-time.After(storeRetry):
		}
	}
}

// Inbox is the subject of answers to a user of NATS. It is the user's own, so that no
// other user can listen there: fetched events come as answers, too.
func Inbox(user string) string {
	if user == "" {
		return strings.TrimSuffix(nats.InboxPrefix, ".")
	}
	return "_INBOX_" + user
}

// userOf returns the user in the first address, "" if its name is no plain token of a
// subject.
func userOf(addresses string) string {
	first, _, _ := strings.Cut(addresses, ",")
	u, err := url.Parse(first)
	if err != nil || strings.ContainsFunc(u.User.Username(), func(r rune) bool {
		return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return ""
	}
	return u.User.Username()
}

// StreamName is the stream of a subject: entitlement.events is in ENTITLEMENT_EVENTS.
func StreamName(subject string) string {
	return strings.ToUpper(strings.ReplaceAll(subject, ".", "_"))
}

// Close ends the connection. Unacknowledged messages are redelivered.
func (c *Client) Close() {
	c.mutex.Lock()
	conn := c.conn
	c.mutex.Unlock()
	if conn != nil {
		conn.Close()
	}
}
