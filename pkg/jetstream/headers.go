package jetstream

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
)

const contentType = "application/protobuf"

// toMsg writes an event in CloudEvents binary mode. Header names are lowercase:
// Knative's JetStream channel misreads a message with a capital in them. The
// plain names beside the ce- ones are for consumers that know no CloudEvents.
func toMsg(m event.Message) *nats.Msg {
	when := m.Time.UTC().Format(time.RFC3339Nano)
	h := nats.Header{
		jetstream.MsgIDHeader: {cmp.Or(m.Dedup, m.ID)},
		"ce-specversion":      {"1.0"},
		"ce-id":               {m.ID},
		"ce-type":             {m.Type},
		"ce-source":           {m.Source},
		"ce-subject":          {escape(m.Key)},
		"ce-time":             {when},
		"content-type":        {contentType},
		"event_type":          {m.ShortType()},
		"aggregate_key":       {escape(m.Key)},
		"occurred_at":         {when},
	}
	if m.Traceparent != "" {
		h["ce-traceparent"] = []string{m.Traceparent}
		h["trace_id"] = []string{traceID(m.Traceparent)}
	}
	return &nats.Msg{Subject: m.Subject, Header: h, Data: m.Data}
}

// escape percent-encodes what a header cannot hold: CloudEvents HTTP binding 1.0.2,
// section 3.1.3.2. Everything else stays readable.
func escape(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// fromHeaders reads what toMsg wrote. It does not judge: an event that is not
// one of ours fails when it is decoded.
func fromHeaders(subject string, h nats.Header, data []byte) event.Message {
	first := func(name string) string {
		if v := h[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	key, err := url.PathUnescape(first("ce-subject"))
	if err != nil {
		key = first("ce-subject")
	}
	when, _ := time.Parse(time.RFC3339Nano, first("ce-time")) // zero when it has none
	return event.Message{
		ID: first("ce-id"), Type: first("ce-type"), Source: first("ce-source"), Subject: subject,
		Key: key, Time: when, Traceparent: first("ce-traceparent"), Data: data,
	}
}

// traceID is the second part of a W3C traceparent.
func traceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}
