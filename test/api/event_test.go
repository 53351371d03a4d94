package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// Structured events: what is not a CloudEvent, or not one for us, is refused as a whole.
func TestBadStructuredEvent(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	e := system.Purchase("completed", "e1", "u_1", "item1", "p_1")
	whole := e.Envelope(nil)
	type test struct {
		name   string
		status int // 0 for any 4xx
		body   string
	}
	change := func(name string, status int, attributes map[string]any) test {
		return test{name, status, e.Envelope(attributes)}
	}
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	tests := []test{
		change("specversion missing", 0, map[string]any{"specversion": nil}),
		change("id missing", 0, map[string]any{"id": nil}),
		change("source missing", 0, map[string]any{"source": nil}),
		change("type missing", 0, map[string]any{"type": nil}),
		change("id empty", 422, map[string]any{"id": ""}),
		change("source empty", 422, map[string]any{"source": ""}),
		change("type empty", 422, map[string]any{"type": ""}),
		change("id null", 422, map[string]any{"id": raw("null")}),
		change("id a number", 422, map[string]any{"id": 1}),
		change("source no URI", 422, map[string]any{"source": "%zz"}),
		change("id of 1025 bytes", 422, map[string]any{"id": strings.Repeat("x", 1025)}),
		change("source of 1025 bytes", 422, map[string]any{"source": "/" + strings.Repeat("x", 1024)}),
		change("time broken", 422, map[string]any{"time": "yesterday"}),
		change("unknown specversion", 422, map[string]any{"specversion": "2.0"}),
		change("old specversion", 422, map[string]any{"specversion": "0.3"}),
		change("unknown type", 422, map[string]any{"type": "purchase.disputed"}),
		change("type in capitals", 422, map[string]any{"type": "Purchase.Completed"}),
		change("type with a space", 422, map[string]any{"type": "purchase.completed "}),
		change("attribute in capitals", 422, map[string]any{"id": nil, "ID": "e1"}),
		change("attribute in capitals too", 422, map[string]any{"Type": "purchase.refunded"}),
		change("attribute without a name", 422, map[string]any{"": "x"}),
		change("data in base64", 422, map[string]any{"data": nil, "data_base64": "e30="}),
		change("extension in capitals", 422, map[string]any{"traceParent": "x"}),
		change("extension an object", 422, map[string]any{"extension": map[string]any{"a": 1}}),
		change("data missing", 422, map[string]any{"data": nil}),
		change("data null", 422, map[string]any{"data": raw("null")}),
		change("data a list", 422, map[string]any{"data": []int{}}),
		change("data a string", 422, map[string]any{"data": e.Data}),
		change("data empty", 422, map[string]any{"data": raw("{}")}),
		change("data with an unknown field", 422, map[string]any{"data": raw(e.Data[:len(e.Data)-1] + `,"amount":1}`)}),
		change("data in capitals", 422, map[string]any{"data": raw(strings.Replace(e.Data, "user_id", "USER_ID", 1))}),
		change("data with NUL", 422, map[string]any{"data": raw(strings.Replace(e.Data, "u_1", `u\u0000`, 1))}),
		change("data with too long an id", 422, map[string]any{"data": raw(strings.Replace(e.Data, "u_1", strings.Repeat("é", 129), 1))}),
		change("data twice", 0, map[string]any{"data_base64": "e30="}),
		change("data of another type", 0, map[string]any{"datacontenttype": "text/plain"}),
		change("data as XML", 0, map[string]any{"datacontenttype": "application/xml"}),
		{"attribute twice", 400, `{"id":"other",` + whole[1:]},
		{"data's field twice", 400, strings.Replace(whole, `"user_id"`, `"user_id":"u_2","user_id"`, 1)},
		{"trailing data", 400, whole + whole},
		{"empty", 400, " "},
		{"a list", 422, "[" + whole + "]"},
		{"null", 422, "null"},
		{"a string", 422, `"x"`},
		{"cut off", 400, whole[:len(whole)-1]},
		{"not UTF-8", 400, strings.Replace(whole, `"e1"`, "\"e\xff\"", 1)},
		{"lone surrogate", 400, strings.Replace(whole, `"e1"`, `"\ud800"`, 1)},
		{"33 levels", 400, e.Envelope(map[string]any{"x": raw(strings.Repeat("[", 32) + strings.Repeat("]", 32))})},
		{"too large", 413, whole + strings.Repeat(" ", 64<<10+1-len(whole))},
		{"far too large", 413, whole + strings.Repeat(" ", 1<<20)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			s.Untouched(func() {
				a := s.Envelope(test.body)
				status := test.status
				if status == 0 && a.Status >= 400 && a.Status < 500 {
					status = a.Status
				}
				system.WantProblem(t, a, status, "")
			})
		})
	}
	// Each was refused for its own fault: without one, the event is accepted.
	system.WantStatus(t, s.Envelope(whole), http.StatusOK)
	full := e.Envelope(map[string]any{"id": "e2"})
	system.WantStatus(t, s.Envelope(full+strings.Repeat(" ", 64<<10-len(full))), http.StatusOK)
}

// Binary events: the same, with attributes in headers.
func TestBadBinaryEvent(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	data := system.ChangeBody("u_1", "item1", "purchase", "p_1")
	whole := func() http.Header {
		return http.Header{
			"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-ID": {"e1"},
			"Ce-Source": {"/shop"}, "Ce-Type": {"purchase.completed"},
		}
	}
	for _, test := range []struct {
		name   string
		status int // 0 for any 4xx
		header string
		values []string
		body   string
	}{
		{"specversion missing", 0, "Ce-Specversion", nil, data},
		{"id missing", 0, "Ce-ID", nil, data},
		{"source missing", 0, "Ce-Source", nil, data},
		{"type missing", 0, "Ce-Type", nil, data},
		{"id empty", 0, "Ce-ID", []string{""}, data},
		{"id not UTF-8", 0, "Ce-ID", []string{"e\xff"}, data},
		{"two ids", 0, "Ce-ID", []string{"e1", "e2"}, data},
		{"two types", 0, "Ce-Type", []string{"purchase.completed", "purchase.refunded"}, data},
		{"two sources", 0, "Ce-Source", []string{"/shop", "/bank"}, data},
		{"unknown specversion", 422, "Ce-Specversion", []string{"2.0"}, data},
		{"old specversion", 422, "Ce-Specversion", []string{"0.3"}, data},
		{"unknown type", 422, "Ce-Type", []string{"purchase.disputed"}, data},
		{"source no URI", 422, "Ce-Source", []string{"%zz"}, data},
		{"id of 1025 bytes", 422, "Ce-ID", []string{strings.Repeat("x", 1025)}, data},
		{"time broken", 422, "Ce-Time", []string{"yesterday"}, data},
		{"text", 415, "Content-Type", []string{"text/plain"}, data},
		{"no type", 415, "Content-Type", nil, data},
		{"batch", 415, "Content-Type", []string{"application/cloudevents-batch+json"}, "[]"},
		{"other format", 415, "Content-Type", []string{"application/cloudevents+xml"}, data},
		{"nearly structured", 415, "Content-Type", []string{"application/cloudevents+jsonx"}, data},
		{"protobuf", 415, "Content-Type", []string{"application/protobuf"}, data},
		{"no data", 0, "", nil, ""},
		{"data null", 422, "", nil, "null"},
		{"data with an unknown field", 422, "", nil, data[:len(data)-1] + `,"amount":1}`},
		{"data twice", 400, "", nil, data + data},
		{"data's field twice", 400, "", nil, `{"user_id":"u_2",` + data[1:]},
		{"too large", 413, "", nil, data + strings.Repeat(" ", 64<<10+1-len(data))},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			header := whole()
			if test.header != "" {
				header[test.header] = test.values
			}
			s.Untouched(func() {
				a := s.Send(system.Request{Method: http.MethodPost, Path: system.EventsPath, Token: s.Writer, Header: header, Body: test.body})
				status := test.status
				if status == 0 && a.Status >= 400 && a.Status < 500 {
					status = a.Status
				}
				system.WantProblem(t, a, status, "")
			})
		})
	}
	system.WantStatus(t, s.Send(system.Request{Method: http.MethodPost, Path: system.EventsPath, Token: s.Writer, Header: whole(), Body: data}), http.StatusOK)
}

// Media types are case-insensitive (RFC 9110, 8.3.1).
func TestEventMediaTypeInCapitals(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	e := system.Purchase("completed", "e1", "u_1", "item1", "p_1")
	for i, media := range []string{"application/cloudevents+json", "application/cloudevents+json; charset=utf-8", "Application/CloudEvents+JSON"} {
		body := e.Envelope(map[string]any{"id": fmt.Sprint(i)})
		if a := s.Call(http.MethodPost, system.EventsPath, s.Writer, body, "Content-Type: "+media); a.Status != http.StatusOK {
			t.Errorf("%s: answered %d %s, want 200", media, a.Status, a.Body)
		}
	}
}

// Only those who may grant may send purchases.
func TestEventRole(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	body := system.Purchase("completed", "e1", "u_1", "item1", "p_1").Envelope(nil)
	s.Untouched(func() {
		media := "Content-Type: application/cloudevents+json"
		system.WantProblem(t, s.Call(http.MethodPost, system.EventsPath, s.Operator, body, media), http.StatusForbidden, "role_missing")
		system.WantProblem(t, s.Call(http.MethodPost, system.EventsPath, "", body, media), http.StatusUnauthorized, "token_missing")
		// Nor does a type reach a function that has no such events.
		for _, function := range []string{"grant", "revoke"} {
			kind := map[string]string{"grant": "refunded", "revoke": "completed"}[function]
			a := s.As(system.AnotherShop, function, http.MethodPost, system.EventsPath, system.Purchase(kind, "e1", "u_1", "item1", "p_1").Envelope(nil), media)
			system.WantProblem(t, a, http.StatusUnprocessableEntity, "event_type_unknown")
		}
	})
}
