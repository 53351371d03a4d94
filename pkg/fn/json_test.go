package fn_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2/humatest"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

type amount struct {
	Amount json.Number `json:"amount"`
	Note   string      `json:"note"`
}

// encoding/json takes {"amount":1,"AMOUNT":900}garbage as 900; nothing here does.
func TestDecodeJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, ` `, `{`, `{"amount":1`, `{"amount":1}x`, `{"amount":1}{}`, `{"amount":1} 1`, `{"amount":1,"amount":1}`, `{"amount":1,"\u0061mount":2}`,
		`{"amount":1,"AMOUNT":900}`, `{"AMOUNT":900}`, `{"amount":1,"other":2}`, `{"amount":01}`, `{"amount":1.}`, `{"amount":.5}`, `{"amount":+1}`, `{"amount":0x1}`,
		`{"amount":NaN}`, `{"amount":1e}`, `{amount:1}`, `{"amount":1,}`, `{"note":"` + "\xff" + `"}`, `{"note":"` + "\n" + `"}`, `{"note":"\ud800"}`, `{"note":"\x"}`,
		`[]`, `1`, `"x"`, "\ufeff{}", `{"amount":1}/**/`, `{"note":1}`,
		strings.Repeat(`[`, 33) + strings.Repeat(`]`, 33), strings.Repeat(`{"a":`, 33) + `1` + strings.Repeat(`}`, 33), strings.Repeat(`[`, 100_000),
	} {
		var v amount
		err := fn.DecodeJSON([]byte(text), &v)
		if err == nil {
			t.Errorf("%.60q is decoded as %+v, want an error", text, v)
			continue
		}
		// The message goes to the caller.
		if message := err.Error(); len(message) > 300 || strings.Contains(message, "\n") || !utf8.ValidString(message) {
			t.Errorf("%.60q: %q, want one short line of UTF-8", text, message)
		}
	}
}

// asText decodes itself, as amounts of money do.
type asText struct{ text string }

func (a *asText) UnmarshalJSON(text []byte) error { a.text = string(text); return nil }

// A value that a schema accepts and the Go type does not is refused in words for the
// caller, without Go's own. null is none, though optional values have pointers.
func TestDecodeJSONSaysWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	type inner struct {
		Size int `json:"size"`
	}
	type request struct {
		Size   int                        `json:"size"`
		ID     int64                      `json:"id"`
		Name   string                     `json:"name"`
		On     bool                       `json:"on"`
		List   []int                      `json:"list"`
		Map    map[string]json.RawMessage `json:"map"`
		Inner  inner                      `json:"inner"`
		Amount asText                     `json:"amount"`
		Maybe  *int                       `json:"maybe"`
		Any    any                        `json:"any"`
		Raw    json.RawMessage            `json:"raw"`
	}
	const whole = " must be a whole number, written without fraction and exponent"
	for text, want := range map[string]string{
		`{"size":1.0}`: "size" + whole, `{"size":1e0}`: "size" + whole, `{"id":1.0}`: "id" + whole, `{"id":10000000000000000000}`: "id is a number that is too large",
		`{"inner":{"size":1.0}}`: "inner.size" + whole, `{"list":[1,2.0]}`: "list.1" + whole,
		`{"size":null}`: "size must not be null", `{"name":null}`: "name must not be null", `{"on":null}`: "on must not be null", `{"list":null}`: "list must not be null",
		`{"list":[1,null]}`: "list.1 must not be null", `{"map":null}`: "map must not be null", `{"inner":null}`: "inner must not be null",
		`{"inner":{"size":null}}`: "inner.size must not be null", `{"amount":null}`: "amount must not be null", `{"maybe":null}`: "maybe must not be null", `null`: "the value must not be null",
	} {
		var v request
		if err := fn.DecodeJSON([]byte(text), &v); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want: %s", text, err, want)
		}
	}
	for _, text := range []string{`{"any":null,"raw":null,"map":{"a":null}}`, `{"size":1,"id":-5,"list":[],"map":{},"inner":{},"amount":1.0,"maybe":1}`} {
		var v request
		if err := fn.DecodeJSON([]byte(text), &v); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Numbers arrive as they were written.
func TestDecodeJSONKeepsNumbers(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"0", "-0", "1", "10000.0", "123456789012345.6789", "9007199254740993", "1e2", "1E+2", "0.1000", strings.Repeat("9", 100)} {
		var v any
		if err := fn.DecodeJSON([]byte(`{"amount":`+number+`,"list":[`+number+`]}`), &v); err != nil {
			t.Errorf("%s: %v", number, err)
			continue
		}
		object := v.(map[string]any)
		if got := fmt.Sprint(object["amount"]); got != number {
			t.Errorf("%s became %s", number, got)
		}
		if got := fmt.Sprint(object["list"].([]any)[0]); got != number {
			t.Errorf("%s in a list became %s", number, got)
		}
	}
}

func TestDecodeJSONDepth(t *testing.T) {
	t.Parallel()
	for depth, ok := range map[int]bool{1: true, fn.MaxDepth: true, fn.MaxDepth + 1: false} {
		for _, text := range []string{strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth), strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth)} {
			var v any
			if err := fn.DecodeJSON([]byte(text), &v); (err == nil) != ok {
				t.Errorf("%d levels: %v", depth, err)
			}
		}
	}
}

// encoding/json reads the same in every text that DecodeJSON accepts, so no second reader
// downstream refuses it or takes it for something else.
func FuzzDecodeJSON(f *testing.F) {
	for _, seed := range []string{`{"amount":1,"note":"x"}`, `{"a":1}x`, `[[]]`, `"\ud83c\udf81"`, `{"a":{"a":1}}`, `{"a":1,"a":2}`, `1e400`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if fn.DecodeJSON(text, &v) != nil {
			return
		}
		var other any
		second := json.NewDecoder(bytes.NewReader(text))
		second.UseNumber()
		if err := second.Decode(&other); err != nil || !reflect.DeepEqual(v, other) {
			t.Errorf("%q is %#v, and to encoding/json %#v, %v", text, v, other, err)
		}
	})
}

// A request is refused as the caller's fault, or is one CloudEvent, which reads the same
// when it is read again.
func FuzzReadEvent(f *testing.F) {
	const structured = `{"specversion":"1.0","id":"e","source":"/shop","type":"purchase.completed","data":{"a":1}}`
	f.Add("application/cloudevents+json", "", "", "", "", []byte(structured))
	f.Add("application/json; charset=utf-8", "1.0", "e%20", "/shop", "purchase.completed", []byte(`{"a":1}`))
	f.Fuzz(func(t *testing.T, media, version, id, source, kind string, body []byte) {
		read := func() (any, error) {
			r := httptest.NewRequest(http.MethodPost, "/v1/events", bytes.NewReader(body))
			for name, value := range map[string]string{"Content-Type": media, "Ce-Specversion": version, "Ce-Id": id, "Ce-Source": source, "Ce-Type": kind} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			event, err := fn.ReadEvent(httptest.NewRecorder(), r)
			if err != nil {
				return nil, err
			}
			if event.ID() == "" || event.Source() == "" || event.Type() == "" || len(event.ID()) > fn.MaxAttribute {
				t.Errorf("%s is an event", event)
			}
			return event, nil
		}
		first, err := read()
		if err != nil {
			if kind := fault.Of(err); kind == fault.Internal || kind == fault.Unavailable {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if second, err := read(); err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%v and then %v, %v", first, second, err)
		}
	})
}

// If-Match is a version as ETag says it, or the request is refused.
func FuzzIfMatch(f *testing.F) {
	for _, seed := range []string{`"12"`, `12`, `"0"`, `*`, `W/"1"`, `"1", "2"`, `"9223372036854775808"`, `"1`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["Idempotency-Key"], r.Header["If-Match"] = []string{"k"}, []string{text}
		var in fn.WriteHeaders
		if in.Resolve(humatest.NewContext(nil, r, httptest.NewRecorder())) != nil {
			return
		}
		if digits := strconv.FormatInt(in.IfMatch(), 10); in.IfMatch() < 1 || text != digits && text != `"`+digits+`"` {
			t.Errorf("%q is version %d", text, in.IfMatch())
		}
	})
}
