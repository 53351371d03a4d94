package event_test

import (
	"encoding/json"
	"errors"
	"fmt"
	oldrand "math/rand" //nolint:depguard // testing/quick asks for it
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/miniserversystem/miniserver/pkg/event"
)

// fields are the fields of an event, as grants write them.
type fields struct {
	EventID          string `json:"event_id"`
	EventType        string `json:"event_type"`
	OccurredAt       string `json:"occurred_at"`
	UserID           string `json:"user_id"`
	StockKeepingUnit string `json:"stock_keeping_unit"`
	Source           string `json:"source"`
	SourceID         string `json:"source_id"`
	Version          int64  `json:"version"`
}

func record(t testing.TB, f fields) event.Record {
	t.Helper()
	payload, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return event.Record{
		ID: f.EventID, Type: f.EventType, Key: f.UserID + "/" + f.StockKeepingUnit,
		OccurredAt: time.Date(2026, 1, 8, 7, 10, 0, 123456000, time.UTC), Traceparent: "00-a-b-01", Payload: payload,
	}
}

func sample() fields {
	return fields{uuid.NewString(), "EntitlementGranted", "2026-01-08T07:10:00.123456Z", "u_1", "item1", "purchase", "p_1", 12}
}

// An event is decoded as it was encoded, whatever strings and numbers it holds.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrips := func(userID, sku, source, sourceID string, version int64, revoked bool) bool {
		in := fields{uuid.NewString(), "EntitlementGranted", "2026-01-08T07:10:00.123456Z", userID, sku, source, sourceID, version}
		if revoked {
			in.EventType = "EntitlementRevoked"
		}
		r := record(t, in)
		m, err := event.Encode(r)
		if err != nil {
			t.Logf("encode: %v", err)
			return false
		}
		if m.Type != "miniserver.entitlement.v1."+in.EventType || m.ShortType() != in.EventType || m.ID != in.EventID ||
			m.Subject != "entitlement.events" || m.Source != "/miniserver/entitlement" || m.Key != r.Key {
			t.Logf("message: %+v", m)
			return false
		}
		back, err := event.Decode(m)
		if err != nil {
			t.Logf("decode: %v", err)
			return false
		}
		var out fields
		if err := json.Unmarshal(back.Payload, &out); err != nil || out != in {
			t.Logf("payload %s: %v", back.Payload, err)
			return false
		}
		back.Payload, r.Payload = nil, nil
		return reflect.DeepEqual(back, r)
	}
	if err := quick.Check(roundTrips, &quick.Config{MaxCount: 2000, Values: hardValues}); err != nil {
		t.Error(err)
	}
}

// hardValues prefers values that break encoders.
func hardValues(values []reflect.Value, _ *oldrand.Rand) {
	texts := []string{"", " ", "\x00", "\u2028", "🎁", `"\/`, "</script>", "\r\n", "\ufffd", strings.Repeat("ä", 128), "null", "1e5"}
	numbers := []int64{0, 1, -1, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, -1 << 63}
	for i := range 4 {
		values[i] = reflect.ValueOf(texts[rand.IntN(len(texts))] + texts[rand.IntN(len(texts))])
	}
	values[4] = reflect.ValueOf(numbers[rand.IntN(len(numbers))])
	if rand.IntN(2) == 0 {
		values[4] = reflect.ValueOf(rand.Int64())
	}
	values[5] = reflect.ValueOf(rand.IntN(2) == 0)
}

// version is a JSON number, exactly, although protobuf's own JSON would quote it.
func TestVersionIsANumber(t *testing.T) {
	t.Parallel()
	in := sample()
	in.Version = 1<<53 + 1
	m, err := event.Encode(record(t, in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := event.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out.Payload), `"version":9007199254740993`) {
		t.Errorf("the payload is %s, want the exact version", out.Payload)
	}
}

// Fields with their zero value are written, too.
func TestEveryFieldIsPresent(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	m, err := event.Encode(event.Record{ID: id, Type: "EntitlementRevoked", Payload: fmt.Appendf(nil, `{"event_id":%q}`, id)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := event.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Payload, &got); err != nil || len(got) != reflect.TypeFor[fields]().NumField() {
		t.Errorf("the payload is %s, %v; want every field", out.Payload, err)
	}
}

func TestUnreadablePayloads(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	for name, r := range map[string]event.Record{
		"unknown type":       {ID: id, Type: "EntitlementLent", Payload: fmt.Appendf(nil, `{"event_id":%q}`, id)},
		"full type":          {ID: id, Type: "miniserver.entitlement.v1.EntitlementGranted", Payload: fmt.Appendf(nil, `{"event_id":%q}`, id)},
		"no type":            {ID: id, Payload: fmt.Appendf(nil, `{"event_id":%q}`, id)},
		"no payload":         {ID: id, Type: "EntitlementGranted"},
		"not JSON":           {ID: id, Type: "EntitlementGranted", Payload: []byte(`{`)},
		"a list":             {ID: id, Type: "EntitlementGranted", Payload: []byte(`[]`)},
		"a wrong field type": {ID: id, Type: "EntitlementGranted", Payload: fmt.Appendf(nil, `{"event_id":%q,"user_id":7}`, id)},
		"a fraction":         {ID: id, Type: "EntitlementGranted", Payload: fmt.Appendf(nil, `{"event_id":%q,"version":1.5}`, id)},
		"too large a number": {ID: id, Type: "EntitlementGranted", Payload: fmt.Appendf(nil, `{"event_id":%q,"version":9223372036854775808}`, id)},
		"another event's id": {ID: id, Type: "EntitlementGranted", Payload: []byte(`{"event_id":"x"}`)},
		"no event_id":        {ID: id, Type: "EntitlementGranted", Payload: []byte(`{}`)},
	} {
		if m, err := event.Encode(r); !errors.Is(err, event.ErrUnreadable) {
			t.Errorf("%s: %+v, %v; want ErrUnreadable", name, m, err)
		}
	}
}

func TestUnreadableMessages(t *testing.T) {
	t.Parallel()
	good, err := event.Encode(record(t, sample()))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(*event.Message){
		"short type":      func(m *event.Message) { m.Type = m.ShortType() },
		"another package": func(m *event.Message) { m.Type = "other.v1.EntitlementGranted" },
		"no type":         func(m *event.Message) { m.Type = "" },
		"only a dot":      func(m *event.Message) { m.Type = "." },
		"another's id":    func(m *event.Message) { m.ID = uuid.NewString() },
		"no id":           func(m *event.Message) { m.ID = "" },
		"cut off":         func(m *event.Message) { m.Data = m.Data[:len(m.Data)-1] },
		"no data":         func(m *event.Message) { m.Data = nil },
		"text":            func(m *event.Message) { m.Data = []byte("hello") },
		"broken UTF-8": func(m *event.Message) {
			m.Data = protowire.AppendString(protowire.AppendTag(m.Data, 4, protowire.BytesType), "\xff")
		},
		"a wrong wire type": func(m *event.Message) { m.Data = append([]byte{0x0f}, m.Data...) },
	} {
		m := good
		damage(&m)
		if r, err := event.Decode(m); !errors.Is(err, event.ErrUnreadable) {
			t.Errorf("%s: %+v, %v; want ErrUnreadable", name, r, err)
		}
	}
}

// A newer writer's fields do not stop an older relay or consumer.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	m, err := event.Encode(event.Record{ID: id, Type: "EntitlementGranted", Payload: fmt.Appendf(nil, `{"event_id":%q,"gift":{"from":"u_2"}}`, id)})
	if err != nil {
		t.Fatal(err)
	}
	m.Data = protowire.AppendString(protowire.AppendTag(m.Data, 99, protowire.BytesType), "new")
	if _, err := event.Decode(m); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("miniserver.entitlement.v1.EntitlementGranted", "x", []byte{0x0a, 1, 'x'})
	f.Fuzz(func(t *testing.T, typ, id string, data []byte) {
		r, err := event.Decode(event.Message{Type: typ, ID: id, Data: data})
		if err != nil {
			if !errors.Is(err, event.ErrUnreadable) {
				t.Fatal(err)
			}
			return
		}
		if _, err := event.Encode(r); err != nil {
			t.Fatalf("a decoded event cannot be encoded: %s: %v", r.Payload, err)
		}
	})
}

// Whatever an event's key contains, headers can hold it, and it is the same when it is read.
func FuzzHeaders(f *testing.F) {
	f.Add("u_1:item", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("é%\n\"", "00")
	f.Fuzz(func(t *testing.T, key, traceparent string) {
		sent := event.Message{ID: "e", Type: "miniserver.entitlement.v1.EntitlementGranted", Source: "/entitlement", Key: key, Time: time.Unix(1, 0).UTC(), Traceparent: traceparent}
		headers := map[string][]string{}
		for name, value := range sent.Headers() {
			headers[name] = []string{value}
		}
		for _, name := range []string{"ce-subject", "aggregate_key"} {
			if value := headers[name][0]; strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
				t.Errorf("key %q is %q in the header %s", key, value, name)
			}
		}
		if got := event.FromHeaders("", headers, nil); !reflect.DeepEqual(got, sent) {
			t.Errorf("%+v is read as %+v", sent, got)
		}
		event.FromHeaders("", map[string][]string{"ce-subject": {key}, "ce-time": {traceparent}}, nil) // a stranger's
	})
}
