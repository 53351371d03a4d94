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
	o.Responses = map[string]*huma.Response{
		strconv.Itoa(http.StatusOK): {
			Description: "Done, now or by an earlier request with this key.",
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: registry.Schema(reflect.TypeFor[T](), true, "")},
			},
		},
	}
}
