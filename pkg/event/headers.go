package event

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// ContentType is of Data.
const ContentType = "application/protobuf"

// Headers is the message in CloudEvents binary mode, without its data. Names are
// lowercase: Knative's JetStream channel misreads a message with a capital in them.
// The headers without ce- are for consumers without CloudEvents.
func (m Message) Headers() map[string]string {
	when := m.Time.UTC().Format(time.RFC3339Nano)
	h := map[string]string{
		"ce-specversion": "1.0",
		"ce-id":          m.ID,
		"ce-type":        m.Type,
		"ce-source":      m.Source,
		"ce-subject":     escape(m.Key),
		"ce-time":        when,
		"content-type":   ContentType,
		"event_type":     m.ShortType(),
		"aggregate_key":  escape(m.Key),
		"occurred_at":    when,
	}
	if m.Traceparent != "" {
		h["ce-traceparent"] = m.Traceparent
		h["trace_id"] = traceID(m.Traceparent)
	}
	return h
}

// escape percent-encodes characters that a header cannot contain: CloudEvents HTTP binding
// 1.0.2, section 3.1.3.2. Everything else stays readable.
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

// FromHeaders parses the result of Headers. It does not validate: a foreign event fails
// when it is decoded.
func FromHeaders(subject string, headers map[string][]string, data []byte) Message {
	first := func(name string) string {
		if v := headers[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	key, err := url.PathUnescape(first("ce-subject"))
	if err != nil {
		key = first("ce-subject")
	}
	when, _ := time.Parse(time.RFC3339Nano, first("ce-time")) // zero when it has none
	return Message{
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
