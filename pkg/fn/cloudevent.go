package fn

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/danielgtaylor/huma/v2"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// EventsRoute is where CloudEvents come in from outside.
var EventsRoute = Route{
	ID: "receive-event", Method: http.MethodPost, Path: EventsPath,
	Summary: "Receive a CloudEvent",
	Description: "Takes CloudEvents 1.0 over HTTP, in binary mode (attributes as ce- headers, the data as body, application/json) " +
		"and in structured mode (all of it in the body, application/cloudevents+json). " +
		"`purchase.completed` grants and `purchase.refunded` revokes; the data is the body of a grant. Extension attributes are allowed and not looked at. " +
		"The event's source and id are its idempotency key, so it may be delivered any number of times, and a refund may overtake its purchase.",
	Roles:   []string{auth.RoleEntitlementWriter},
	Refuses: []int{http.StatusConflict},
}

const (
	structuredType = "application/cloudevents+json"
	// MaxAttribute is the longest CloudEvents attribute, in bytes.
	MaxAttribute = 1024
	// attributeNames is the pattern of their names (CloudEvents 1.0.2, 3.1).
	attributeNames = "^[a-z0-9]+$"
)

// ReadEvent reads r as a CloudEvent, in either mode, and gives r its body back. Errors are
// faults: a request that is no CloudEvent, lacks an attribute or is not JSON is refused.
func ReadEvent(w http.ResponseWriter, r *http.Request) (cloudevents.Event, error) {
	if r.URL.RawQuery != "" {
		return cloudevents.Event{}, fault.New(fault.Invalid, "request_invalid", "Events take no query parameters.")
	}
	body, err := BufferBody(w, r)
	if err != nil {
		return cloudevents.Event{}, err
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	structured := err == nil && media == structuredType
	if !structured && !isJSON(r.Header.Get("Content-Type")) {
		return cloudevents.Event{}, fault.New(fault.UnsupportedMedia, "content_type_unsupported",
			"Send a CloudEvent with JSON data: binary mode as application/json with ce- headers, or structured mode as %s.", structuredType)
	}
	if err := checkJSON(body); err != nil {
		return cloudevents.Event{}, malformed(err)
	}
	// The SDK consumes the body, and knows the media type in lower case only.
	copied := r.Clone(r.Context())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	copied.Header.Set("Content-Type", media)
	if structured {
		// The SDK would match names in any case; two spellings must not both count.
		err = checkNames(body)
	} else {
		err = decodeAttributes(copied.Header)
	}
	if err != nil {
		return cloudevents.Event{}, err
	}
	event, err := cehttp.NewEventFromHTTPRequest(copied)
	if err != nil || event.SpecVersion() != cloudevents.VersionV1 {
		return cloudevents.Event{}, fault.New(fault.Invalid, "event_invalid",
			"This is not a CloudEvent 1.0 with JSON data: specversion, id, source and type are required, as ce- headers or in the structured JSON.")
	}
	if err := event.Validate(); err != nil {
		return cloudevents.Event{}, fault.New(fault.Invalid, "event_invalid", "The CloudEvent is not valid: %s.", oneLine(err))
	}
	if len(event.ID()) > MaxAttribute || len(event.Source()) > MaxAttribute || len(event.Type()) > MaxAttribute {
		return cloudevents.Event{}, fault.New(fault.Invalid, "event_invalid", "An attribute of the CloudEvent is longer than %d bytes.", MaxAttribute)
	}
	if media := event.DataContentType(); media != "" && !isJSON(media) {
		return cloudevents.Event{}, fault.New(fault.UnsupportedMedia, "content_type_unsupported", "The event's data must be application/json.")
	}
	return *event, nil
}

// decodeAttributes undoes the percent-encoding of attributes in headers (CloudEvents
// HTTP binding 1.0.2, section 3.1.3.2), so that an event is the same one in either
// mode, and refuses what could be read in two ways.
func decodeAttributes(header http.Header) error {
	for name, values := range header {
		if !strings.HasPrefix(name, "Ce-") {
			continue
		}
		decoded, err := url.PathUnescape(values[0])
		if err != nil || len(values) > 1 || !utf8.ValidString(decoded) {
			return fault.New(fault.Invalid, "event_invalid", "The header %s must be there once, percent-encoded UTF-8.", strings.ToLower(name))
		}
		values[0] = decoded
	}
	return nil
}

var attributeName = regexp.MustCompile(attributeNames)

func checkNames(body []byte) error {
	var envelope any
	if err := DecodeJSON(body, &envelope); err != nil {
		return malformed(err)
	}
	attributes, ok := envelope.(map[string]any)
	if !ok {
		return fault.New(fault.Invalid, "event_invalid", "A structured CloudEvent is a JSON object.")
	}
	for name := range attributes {
		if !attributeName.MatchString(name) {
			return fault.New(fault.Invalid, "event_invalid", "CloudEvents attributes are lowercase letters and digits, and JSON data is in data; %q is neither.", name)
		}
	}
	return nil
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// HandleEvents registers a handler for the CloudEvents of EventsRoute whose type
// is one of the function's Events. The data is checked like the body T of a
// request.
func HandleEvents[T any](e *Env, handler func(context.Context, cloudevents.Event, T) (*Stored, error)) {
	schema := e.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	definePrintable(e.api.OpenAPI())
	e.Mux.HandleFunc(EventsRoute.Pattern(), func(w http.ResponseWriter, r *http.Request) {
		identity, err := e.Authorize(w, r, EventsRoute)
		if err != nil {
			problem.Write(w, e.problem(r.Context(), err))
			return
		}
		ctx, cancel := context.WithTimeout(auth.WithIdentity(r.Context(), identity), e.timeout())
		defer cancel()
		stored, err := func() (*Stored, error) {
			event, err := ReadEvent(w, r)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(e.Function.Events, event.Type()) {
				return nil, UnknownEvent(event.Type(), e.Function.Events)
			}
			if len(event.Data()) == 0 {
				return nil, fault.New(fault.Invalid, "event_invalid", "The event has no data.")
			}
			var data T
			if err := decodeValid(e.api.OpenAPI().Components.Schemas, schema, event.Data(), &data); err != nil {
				return nil, err
			}
			return handler(ctx, event, data)
		}()
		if err != nil {
			problem.Write(w, e.problem(ctx, err))
			return
		}
		stored.Write(w)
	})
}

// UnknownEvent returns the error for an event of another type than those that are taken.
func UnknownEvent(eventType string, taken []string) error {
	return fault.New(fault.Invalid, "event_type_unknown", "Events of type %q are not taken here; send %s.", eventType, strings.Join(taken, " or "))
}

// decodeValid reads data into v, after checking it against schema.
func decodeValid(registry huma.Registry, schema *huma.Schema, data []byte, v any) error {
	var parsed any
	if err := DecodeJSON(data, &parsed); err != nil {
		return malformed(err)
	}
	var result huma.ValidateResult
	path := huma.NewPathBuffer(make([]byte, 0, 64), 0)
	path.Push("data")
	huma.Validate(registry, schema, path, huma.ModeWriteToServer, parsed, &result)
	if len(result.Errors) > 0 {
		return newProblem(http.StatusUnprocessableEntity, "", result.Errors).(*problem.Problem)
	}
	if err := DecodeJSON(data, v); err != nil {
		return fault.New(fault.Invalid, "request_invalid", "The data does not fit: %s.", oneLine(err))
	}
	return nil
}

const defaultTimeout = 10 * time.Second

func (e *Env) timeout() time.Duration {
	if e.Function.Timeout > 0 {
		return e.Function.Timeout
	}
	return defaultTimeout
}
