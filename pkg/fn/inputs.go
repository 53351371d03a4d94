package fn

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// UserPath is embedded in the input of a route under /v1/users/{user_id}.
type UserPath struct {
	UserID string `path:"user_id" minLength:"1" maxLength:"128" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]+$" patternDescription:"printable characters" doc:"Whose." example:"u_123"`
}

// Page is embedded in the input of a list.
type Page struct {
	Cursor string `query:"cursor" maxLength:"512" doc:"Where to go on: next_cursor of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"100" doc:"How many at most."`
}

// Answers documents that a route answers 200 with a T, for handlers that return
// stored bytes, and that the Idempotency-Key is required.
func Answers[T any](o *huma.Operation, registry huma.Registry) {
	o.Metadata = map[string]any{needsKey: true}
	answers[T](http.StatusOK, o, registry)
}

// needsKey marks, in the Metadata of an operation, that requests without an
// Idempotency-Key are refused.
const needsKey = "idempotency key"

// Creates documents that a route answers 201 with a T, for handlers that return
// stored bytes.
func Creates[T any](o *huma.Operation, registry huma.Registry) {
	o.DefaultStatus = http.StatusCreated
	answers[T](http.StatusCreated, o, registry)
}

// Nullable documents that properties of T, which are objects, may be null; tags
// cannot say so.
func Nullable[T any](properties ...string) func(*huma.Operation, huma.Registry) {
	return func(_ *huma.Operation, registry huma.Registry) {
		reference := registry.Schema(reflect.TypeFor[T](), true, "")
		schema := registry.SchemaFromRef(reference.Ref)
		for _, name := range properties {
			if property := schema.Properties[name]; property.AnyOf == nil {
				schema.Properties[name] = &huma.Schema{
					Description: property.Description,
					AnyOf:       []*huma.Schema{{Ref: property.Ref}, {Type: "null"}},
				}
			}
		}
	}
}

func answers[T any](status int, o *huma.Operation, registry huma.Registry) {
	o.Responses = map[string]*huma.Response{
		strconv.Itoa(status): {
			Description: "Done, now or by an earlier request with this key.",
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: registry.Schema(reflect.TypeFor[T](), true, "")},
			},
		},
	}
}
