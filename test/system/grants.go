package system

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// CloudEvent is an event to send.
type CloudEvent struct {
	ID, Source, Kind string
	Data             string
}

// Purchase is an event of the shop: "completed" or "refunded".
func Purchase(kind, id, user, item, purchase string) CloudEvent {
	return CloudEvent{id, "/shop", "purchase." + kind, ChangeBody(user, item, kind, purchase)}
}

// Binary sends e in binary mode: its attributes are headers.
func (s *System) Binary(e CloudEvent, headers ...string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, EventsPath, s.Writer, e.Data, append([]string{
		"Content-Type: application/json", "Ce-Specversion: 1.0", "Ce-ID: " + e.ID, "Ce-Source: " + e.Source, "Ce-Type: " + e.Kind,
	}, headers...)...)
}

// Structured sends e in structured mode: as one JSON object.
func (s *System) Structured(e CloudEvent) Answer {
	s.T.Helper()
	return s.Envelope(e.Envelope(nil))
}

// Envelope is the structured form, with some attributes changed; nil omits one.
func (e CloudEvent) Envelope(change map[string]any) string {
	attributes := map[string]any{
		"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.Kind,
		"datacontenttype": "application/json", "data": json.RawMessage(e.Data),
	}
	maps.Copy(attributes, change)
	maps.DeleteFunc(attributes, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(attributes)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Envelope sends a body as a structured event.
func (s *System) Envelope(body string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, EventsPath, s.Writer, body, "Content-Type: application/cloudevents+json; charset=UTF-8")
}

// Grant grants item to user with key, as the purchase service.
func (s *System) Grant(key, user, item string, headers ...string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, "/v1/entitlements/grants", s.Writer, ChangeBody(user, item, "purchase", "p_"+key), append(headers, "Idempotency-Key: "+key)...)
}

// Revoke revokes item of user with key, as the purchase service.
func (s *System) Revoke(key, user, item string, headers ...string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, "/v1/entitlements/revokes", s.Writer, ChangeBody(user, item, "refund", "p_"+key), append(headers, "Idempotency-Key: "+key)...)
}

// ChangeBody is the body of a grant or a revoke.
func ChangeBody(user, item, reason, purchase string) string {
	body, err := json.Marshal(map[string]string{"user_id": user, "stock_keeping_unit": item, "reason": reason, "purchase_id": purchase})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// SKU is the name of item n.
func SKU(n int) string { return fmt.Sprint("item", n) }
