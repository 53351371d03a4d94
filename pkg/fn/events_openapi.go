package fn

import (
	"github.com/danielgtaylor/huma/v2"
)

// describeEvents adds EventsRoute, which huma does not know: the same event in either
// mode. Its data and its answer are those of a grant.
func describeEvents(doc *huma.OpenAPI, types []any) error {
	schemas := doc.Components.Schemas
	change, changed := &huma.Schema{Ref: "#/components/schemas/Change"}, &huma.Schema{Ref: "#/components/schemas/Changed"}
	longest, one := MaxAttribute, 1
	name := func(description, example string) *huma.Schema {
		return &huma.Schema{Type: "string", MinLength: &one, MaxLength: &longest, Description: description, Examples: []any{example}}
	}
	// In structured mode they are not looked at, so that the schema bounds nothing.
	header := func(name, description, example string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: description, Schema: &huma.Schema{Type: "string", Examples: []any{example}}}
	}
	version := &huma.Schema{Type: "string", Const: "1.0"}
	id := name("Unique for its source.", "r-1")
	source := name("Who sends it: a URI reference.", "/shop")
	kind := name("What happened.", "purchase.completed")
	kind.Enum = types
	at := &huma.Schema{Type: "string", Format: "date-time", Description: "When it happened."}

	schemas.Map()["PurchaseEvent"] = &huma.Schema{
		Type:        huma.TypeObject,
		Description: "A CloudEvent in structured mode.",
		Required:    []string{"specversion", "id", "source", "type", "data"},
		Properties: map[string]*huma.Schema{
			"specversion": version, "id": id, "source": source, "type": kind, "time": at, "data": change,
			"datacontenttype": {Type: "string", Description: "application/json, which it is when it is left out.", Examples: []any{"application/json"}},
		},
		// All other properties are extension attributes.
		Extensions: map[string]any{
			"propertyNames":        &huma.Schema{Pattern: attributeNames},
			"additionalProperties": map[string]any{"type": []string{"string", "integer", "boolean"}},
		},
	}
	o := &huma.Operation{
		OperationID: EventsRoute.ID, Summary: EventsRoute.Summary, Description: EventsRoute.Description,
		Tags: []string{"events"},
		Parameters: []*huma.Param{
			header("ce-specversion", "1.0. Required in binary mode, as ce-id, ce-source and ce-type.", "1.0"),
			header("ce-id", id.Description, "r-1"),
			header("ce-source", source.Description, "/shop"),
			header("ce-type", "purchase.completed or purchase.refunded.", "purchase.completed"),
			header("ce-time", at.Description, "2026-01-08T07:10:00Z"),
		},
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{
			"application/json": {Schema: change},
			structuredType:     {Schema: &huma.Schema{Ref: "#/components/schemas/PurchaseEvent"}},
		}},
		Responses: map[string]*huma.Response{"200": stored(changed)},
	}
	Versioned(o, schemas)
	doc.Paths[EventsPath] = &huma.PathItem{Post: o}
	return describe(o, EventsRoute, false, schemas)
}
