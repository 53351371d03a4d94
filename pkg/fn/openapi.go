package fn

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// OpenAPI describes the public API of functions, as indented JSON. It builds
// them, which connects to nothing.
func OpenAPI(functions []Function) ([]byte, error) {
	defaults, err := settings.LoadFrom(map[string]string{"DEBUG_ENDPOINTS": "true", "REDIS_URL": "redis://localhost"})
	if err != nil {
		return nil, err
	}
	rt := NewRuntime(defaults, slog.New(slog.DiscardHandler), functions)
	defer rt.Close()
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "MiniServerSystem", Version: "v1",
			Description: "The backend that a game or an app with purchases needs. Errors are application/problem+json (RFC 9457) with a stable code.",
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Paths: map[string]*huma.PathItem{},
		Components: &huma.Components{
			Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "An access token of the issuer."}},
		},
		Security: []map[string][]string{{"bearer": {}}},
	}
	for _, f := range functions {
		env, err := rt.build(f)
		if err != nil {
			return nil, err
		}
		if err := merge(doc, env.api.OpenAPI()); err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Name, err)
		}
		if len(f.Events) > 0 && doc.Paths[EventsPath] == nil {
			describeEvents(doc)
		}
	}
	return json.MarshalIndent(doc, "", "  ")
}

func merge(doc, part *huma.OpenAPI) error {
	for path, item := range part.Paths {
		requireKeys(item)
		into := doc.Paths[path]
		if into == nil {
			doc.Paths[path] = item
			continue
		}
		if into.Get != nil && item.Get != nil || into.Post != nil && item.Post != nil || into.Delete != nil && item.Delete != nil {
			return fmt.Errorf("path %s is described twice", path)
		}
		for _, pair := range []struct{ to, from **huma.Operation }{{&into.Get, &item.Get}, {&into.Post, &item.Post}, {&into.Delete, &item.Delete}} {
			if *pair.from != nil {
				*pair.to = *pair.from
			}
		}
	}
	// Only names that were used are in Map; the same name is the same type.
	theirs, ours := part.Components.Schemas.Map(), doc.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if ours[name] != nil && !reflect.DeepEqual(mustJSON(ours[name]), mustJSON(theirs[name])) {
			return fmt.Errorf("schema %s is described twice, differently", name)
		}
		ours[name] = theirs[name]
	}
	return nil
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// requireKeys documents what Resolve enforces with a 400 of its own.
func requireKeys(item *huma.PathItem) {
	if item.Post == nil || item.Post.Metadata[needsKey] == nil {
		return
	}
	for _, parameter := range item.Post.Parameters {
		if parameter.Name == idempotency.Header {
			parameter.Required = true
		}
	}
}

func describeEvents(doc *huma.OpenAPI) {
	change := &huma.Schema{Ref: "#/components/schemas/Change"}
	text := func(description string) *huma.Schema { return &huma.Schema{Type: "string", Description: description} }
	problemContent := map[string]*huma.MediaType{problem.ContentType: {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}
	doc.Paths[EventsPath] = &huma.PathItem{Post: &huma.Operation{
		OperationID: EventsRoute.ID, Summary: EventsRoute.Summary, Description: EventsRoute.Description,
		Tags:     []string{"events"},
		Security: []map[string][]string{{"bearer": {}}},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: change},
			structuredType: {Schema: &huma.Schema{
				Type:     "object",
				Required: []string{"specversion", "id", "source", "type", "data"},
				Properties: map[string]*huma.Schema{
					"specversion": text("1.0"), "id": text("Unique for its source."), "source": text("Who sends it: a URI reference."),
					"type": text("purchase.completed or purchase.refunded."), "time": text("When it happened, RFC 3339."),
					"datacontenttype": text("application/json."), "data": change,
				},
			}},
		}},
		Responses: map[string]*huma.Response{
			"200": {Description: "Done, now or when the event came before.", Content: map[string]*huma.MediaType{
				"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/Changed"}}}},
			"default": {Description: "Error", Content: problemContent},
		},
	}}
}
