// Package webhook sends notifications as Standard Webhooks
// (standardwebhooks.com): a JSON body, signed, with an id that stays the same
// for every attempt. Endpoints come from the operator's settings only.
package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/spans"
)

// Options of a channel.
type Options struct {
	URLs    []string // all get every notification
	Secrets []string // whsec_…; every one signs, so that receivers can rotate
	// AllowPrivate permits plain http and non-public addresses.
	AllowPrivate bool
	Timeout      time.Duration // of one call
}

// minSecretBytes is the minimum of the Standard Webhooks specification.
const minSecretBytes = 24

// Channel is a notification.Channel.
type Channel struct {
	transport http.RoundTripper
	timeout   time.Duration
	urls      []string
	signers   []*standardwebhooks.Webhook
}

var _ notification.Channel = (*Channel)(nil)

// New returns a channel, or an error that names the invalid option.
func New(o Options) (*Channel, error) {
	c := &Channel{transport: newTransport(o.AllowPrivate, o.Timeout), timeout: o.Timeout, urls: o.URLs}
	for _, raw := range o.URLs {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
			return nil, errors.New("WEBHOOK_URLS: an entry is not an https URL without user information")
		}
		if u.Scheme == "http" && !o.AllowPrivate {
			return nil, errors.New("WEBHOOK_URLS: plain http is only for tests; use https, or set WEBHOOK_ALLOW_PRIVATE=true")
		}
	}
	for i, secret := range o.Secrets {
		random, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil || len(random) < minSecretBytes {
			return nil, fmt.Errorf("WEBHOOK_SECRETS: entry %d is not a secret; it should be whsec_ and base64 of 24 to 64 random bytes", i+1)
		}
		c.signers = append(c.signers, signer)
	}
	if len(c.urls) == 0 || len(c.signers) == 0 {
		return nil, errors.New("a webhook channel needs WEBHOOK_URLS and WEBHOOK_SECRETS")
	}
	return c, nil
}

// body is the body of a webhook.
type body struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // time of the event
	Data      data   `json:"data"`
}

type data struct {
	NotificationID string          `json:"notification_id"`
	EventID        string          `json:"event_id"`
	UserID         string          `json:"user_id"`
	Payload        json.RawMessage `json:"payload"`
}

// Send posts the notification to every endpoint, whatever the others answer, and returns
// nil when all of them answered 2xx. After a failure at one endpoint the notification is
// sent to all again: receivers deduplicate by the header webhook-id, the notification's
// id. If all failures are final, so is Send's.
func (c *Channel) Send(ctx context.Context, o notification.Outgoing) error {
	payload, err := json.Marshal(body{
		Type: o.EventType, Timestamp: o.OccurredAt.UTC().Format(time.RFC3339Nano),
		Data: data{o.ID, o.EventID, o.UserID, o.Payload},
	})
	if err != nil {
		return notification.Never(err)
	}
	now := time.Now()
	signature, err := c.sign(o.ID, now, payload)
	if err != nil {
		return notification.Never(err)
	}
	// All at once, so that a hanging endpoint delays no other.
	failures := make([]error, len(c.urls))
	var posting sync.WaitGroup
	for i, target := range c.urls {
		posting.Go(func() { failures[i] = c.post(ctx, target, o, now, signature, payload) })
	}
	posting.Wait()
	var final, again error
	for i, err := range failures {
		if err == nil {
			continue
		}
		// The URL may contain a token, so logs name the endpoint by its position.
		err = fmt.Errorf("endpoint %d: %w", i+1, err)
		if notification.IsNever(err) {
			final = err
		} else if again == nil {
			again = err
		}
	}
	if again != nil {
		return again
	}
	return final
}

func (c *Channel) sign(id string, at time.Time, payload []byte) (string, error) {
	var signatures []string
	for _, signer := range c.signers {
		signature, err := signer.Sign(id, at, payload)
		if err != nil {
			return "", err
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}

// maxAnswerBytes bounds the part of an answer that is read to reuse the connection.
const maxAnswerBytes = 4 << 10

func (c *Channel) post(ctx context.Context, target string, o notification.Outgoing, at time.Time, signature string, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(payload))
	if err != nil {
		return notification.Never(errors.New("the URL cannot be used"))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "miniserver-webhook")
	request.Header.Set(standardwebhooks.HeaderWebhookID, o.ID)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	if traceparent := spans.Recorded(ctx, o.Traceparent); traceparent != "" {
		request.Header.Set("Traceparent", traceparent)
	}
	// Not through an http.Client, which would put the Location of a redirect into its
	// errors.
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswerBytes)
	return judge(response)
}

// judge follows the Standard Webhooks specification: 2xx is delivered, 410 means that the
// receiver is gone, and everything else is retried.
func judge(response *http.Response) error {
	reason := fmt.Errorf("answered %d", response.StatusCode)
	switch {
	case response.StatusCode >= 200 && response.StatusCode < 300:
		return nil
	case response.StatusCode == http.StatusGone:
		return notification.Never(reason)
	}
	if after := retryAfter(response.Header.Get("Retry-After")); after > 0 {
		return notification.RetryAfter(after, reason)
	}
	return reason
}

// retryAfter parses seconds or a date (RFC 9110, section 10.2.3); 0 if it is neither.
func retryAfter(value string) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(max(0, min(seconds, int(notification.MaxRetryAfter/time.Second)))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return time.Until(date)
	}
	return 0
}
