package fn

import (
	"encoding/json"
	"reflect"
	"regexp"

	"github.com/danielgtaylor/huma/v2"
)

// UserPath is embedded in the input of a route under /v1/users/{user_id}.
type UserPath struct {
	UserID string `path:"user_id" minLength:"1" maxLength:"128" format:"printable" doc:"Whose." example:"u_123"`
}

// Page is embedded in the input of a list.
type Page struct {
	Cursor string `query:"cursor" maxLength:"512" doc:"Where to go on: next_cursor of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"100" doc:"How many at most."`
}

// NextPage is embedded in the answer of a list.
type NextPage struct {
	NextCursor string `json:"next_cursor,omitempty" doc:"Pass it as cursor to get the next page; absent on the last."`
}

// printable refuses characters that no name needs or that mislead readers: control
// characters, line separators, invisible and reordering ones, private use. It is
// written so that the regular expressions of all languages read it alike, and does
// not depend on a version of Unicode.
const (
	printable = "^[^\\x00-\\x1f\\x7f-\\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ue000-\uf8ff\ufeff\ufff9-\ufffb\ufffe\uffff" +
		"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000f0000-\U0010ffff]+$"
	printableFormat = "printable"
)

// Printable reports whether text is what fields with the format "printable" take.
func Printable(text string) bool { return printables.MatchString(text) }

var printables = regexp.MustCompile(printable)

// definePrintable gives fields tagged format:"printable" their pattern, so that domains
// need not know it.
func definePrintable(document *huma.OpenAPI) {
	define := func(s *huma.Schema) {
		if s.Format == printableFormat {
			s.Format, s.Pattern, s.PatternDescription = "", printable, "printable characters"
			s.PrecomputeMessages()
		}
	}
	for _, item := range document.Paths {
		for _, method := range methods {
			if o := *operationOf(item, method); o != nil {
				for _, parameter := range o.Parameters {
					define(parameter.Schema)
				}
			}
		}
	}
	for _, s := range document.Components.Schemas.Map() {
		for _, property := range s.Properties {
			define(property)
		}
	}
}

// newSchemas is a registry of schemas in which a json.Number is what it is.
func newSchemas() huma.Registry {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[json.Number](), reflect.TypeFor[decimal]())
	return schemas
}

// decimal documents a json.Number, which huma takes for a string.
type decimal struct{}

// Schema documents a decimal as a number.
func (decimal) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Description: "Exact; read it as a decimal and not as a float."}
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
