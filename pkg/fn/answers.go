package fn

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Answers documents that a route answers a status with a T, beside the answer of its
// output type.
func Answers[T any](status int, description string) func(*huma.Operation, huma.Registry) {
	return func(o *huma.Operation, registry huma.Registry) {
		if o.Responses == nil {
			o.Responses = map[string]*huma.Response{}
		}
		o.Responses[strconv.Itoa(status)] = answer(registry.Schema(reflect.TypeFor[T](), true, ""), description)
	}
}

// Stores documents that a route whose output is Stored answers a status with a T.
func Stores[T any](status int) func(*huma.Operation, huma.Registry) {
	return func(o *huma.Operation, registry huma.Registry) {
		o.DefaultStatus = status
		o.Responses = map[string]*huma.Response{strconv.Itoa(status): stored(registry.Schema(reflect.TypeFor[T](), true, ""))}
	}
}

// Creates documents that a route answers 201.
func Creates(o *huma.Operation, _ huma.Registry) { o.DefaultStatus = http.StatusCreated }

func answer(schema *huma.Schema, description string) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

func stored(schema *huma.Schema) *huma.Response {
	r := answer(schema, "Done, now or by an earlier request with this key.")
	r.Headers = map[string]*huma.Param{idempotency.ReplayedHeader: {
		Description: "There when this is the stored answer to an earlier request with this key.",
		Schema:      &huma.Schema{Type: "string", Const: "true"},
	}}
	return r
}

// Versioned documents that the answer with 200 has an ETag.
func Versioned(o *huma.Operation, _ huma.Registry) {
	if o.Responses == nil {
		o.Responses = map[string]*huma.Response{"200": {Headers: map[string]*huma.Param{}}}
	}
	o.Responses["200"].Headers["ETag"] = &huma.Param{
		Description: "The version, in quotes, for If-Match.", Required: true,
		Schema: &huma.Schema{Type: "string", Pattern: `^"[1-9][0-9]*"$`, Examples: []any{`"12"`}},
	}
}

// refusals are the statuses of all errors that a route can be answered with. own
// routes are the gateway's; to the others it forwards.
func refusals(r Route, own bool) []int {
	statuses := append([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	}, r.Refuses...)
	if len(r.ShownTo) > 0 {
		statuses = append(statuses, http.StatusNotFound)
	}
	if len(r.Roles) > 0 && !slices.Equal(r.Roles, r.ShownTo) || r.Method != http.MethodGet { // a write with a cookie and without X-CSRF
		statuses = append(statuses, http.StatusForbidden)
	}
	if r.hasBody() {
		statuses = append(statuses, http.StatusUnsupportedMediaType)
	}
	if r.hasBody() || !own { // the gateway reads any body before it forwards
		statuses = append(statuses, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge)
	}
	if !own {
		statuses = append(statuses, http.StatusGatewayTimeout)
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

// describe completes an operation that huma described: authentication, errors, the
// headers that all answers have, and examples.
func describe(o *huma.Operation, r Route, own bool, schemas huma.Registry) error {
	o.Security = []map[string][]string{{"bearer": {}}, {"session": {}}}
	if r.Method != http.MethodGet {
		o.Security[1]["csrf"] = []string{}
	}
	delete(o.Responses, "default")
	for _, response := range o.Responses {
		if response.Headers == nil {
			response.Headers = map[string]*huma.Param{}
		}
		for name := range always(true) {
			response.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
		}
		if err := addExamples(response.Content, schemas); err != nil {
			return fmt.Errorf("answer of %s: %w", o.OperationID, err)
		}
	}
	for _, status := range refusals(r, own) {
		o.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + nameOf(status)}
	}
	if o.RequestBody == nil {
		return nil
	}
	o.RequestBody.Required = true
	if err := addExamples(o.RequestBody.Content, schemas); err != nil {
		return fmt.Errorf("body of %s: %w", o.OperationID, err)
	}
	return nil
}

// always are the headers of every answer; those of limits only where it is certain
// that the request was counted.
func always(counted bool) map[string]*huma.Param {
	text := func(description, example string) *huma.Param {
		return &huma.Param{Description: description, Schema: &huma.Schema{Type: "string", Examples: []any{example}}}
	}
	headers := map[string]*huma.Param{
		"RateLimit-Policy":       text("What the caller may do: q requests at once, and all of them again after w seconds.", `"player";q=1000;w=4`),
		"RateLimit":              text("Where the caller stands: r requests are left, and in t seconds all are there again.", `"player";r=998;t=1`),
		"Cache-Control":          {Schema: &huma.Schema{Type: "string", Const: "no-store"}},
		"X-Content-Type-Options": {Schema: &huma.Schema{Type: "string", Const: "nosniff"}},
	}
	for name, header := range headers {
		header.Required = counted || !strings.HasPrefix(name, "RateLimit")
	}
	return headers
}

// nameOf a status in components.
func nameOf(status int) string { return strings.ReplaceAll(http.StatusText(status), " ", "") }

// errorAnswers are the answers with each status that problems have, with their codes
// as examples.
func errorAnswers() map[string]*huma.Response {
	answers := map[string]*huma.Response{}
	for _, code := range problem.Codes {
		if code.Status == http.StatusMethodNotAllowed {
			continue // no operation answers so
		}
		answer := answers[nameOf(code.Status)]
		if answer == nil {
			// Requests answered with these may not have been counted by a limit.
			uncounted := []int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable}
			headers := always(!slices.Contains(uncounted, code.Status))
			wait := &huma.Param{Description: "Seconds until the same request makes sense again.", Schema: &huma.Schema{Type: "integer", Examples: []any{2}}}
			switch code.Status {
			case http.StatusUnauthorized:
				headers["WWW-Authenticate"] = &huma.Param{Required: true, Schema: &huma.Schema{Type: "string", Const: "Bearer"}}
			case http.StatusTooManyRequests:
				wait.Required = true
				headers["Retry-After"] = wait
			case http.StatusConflict, http.StatusServiceUnavailable:
				headers["Retry-After"] = wait
			}
			answer = &huma.Response{
				Description: http.StatusText(code.Status) + ".",
				Headers:     headers,
				Content: map[string]*huma.MediaType{problem.ContentType: {
					Schema:   &huma.Schema{Ref: "#/components/schemas/Problem"},
					Examples: map[string]*huma.Example{},
				}},
			}
			answers[nameOf(code.Status)] = answer
		}
		answer.Content[problem.ContentType].Examples[code.Code] = &huma.Example{Value: problem.New(code.Status, code.Code, code.Do)}
	}
	return answers
}
