package fn

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// SessionCookie stands in the document for the session cookie, whose name depends on
// where the system is reached.
const SessionCookie = "{session cookie}"

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
			Description: "The backend that a game or an app with purchases needs.\n\n" + errorCodes(),
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: []*huma.Server{{URL: "/"}},
		Paths:   map[string]*huma.PathItem{},
		Components: &huma.Components{
			Schemas: newSchemas(), Responses: errorAnswers(), Headers: always(true),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer":  {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "An access token of the issuer. With it no cookie is looked at."},
				"session": {Type: "apiKey", In: "cookie", Name: SessionCookie, Description: "How browsers call: GET /login?return_to=… signs in at the issuer and sets this cookie, which no script can read; POST /logout ends the session."},
				"csrf":    {Type: "apiKey", In: "header", Name: "X-CSRF", Description: "Writes that a cookie authenticates carry X-CSRF: 1 and come from a page of this site."},
			},
		},
	}
	var events []any
	for _, f := range functions {
		env, err := rt.build(f)
		if err != nil {
			return nil, err
		}
		part := env.api.OpenAPI()
		for _, event := range f.Events {
			events = append(events, event)
		}
		for _, route := range f.Routes {
			if route.Page {
				continue
			}
			if err := describe(*operationOf(part.Paths[route.Path], route.Method), route, f.Public, part.Components.Schemas); err != nil {
				return nil, err
			}
		}
		if err := merge(doc, part); err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Name, err)
		}
	}
	if err := describeEvents(doc, events); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return escaped(text), err
}

// errorCodes explains the codes of errors, in Markdown. The page /docs finds a code by the
// beginning of its line.
func errorCodes() string {
	var out strings.Builder
	out.WriteString("## Errors\n\nErrors are application/problem+json (RFC 9457) with a stable code, and the examples of each status are its codes.\n\n")
	for _, code := range problem.Codes {
		fmt.Fprintf(&out, "- `%s` (%d): %s\n", code.Code, code.Status, code.Do)
	}
	return out.String()
}

// operationOf is where item has the operation of a method.
func operationOf(item *huma.PathItem, method string) **huma.Operation {
	switch method {
	case http.MethodGet:
		return &item.Get
	case http.MethodPost:
		return &item.Post
	case http.MethodPut:
		return &item.Put
	case http.MethodPatch:
		return &item.Patch
	case http.MethodDelete:
		return &item.Delete
	}
	panic("routes have no method " + method)
}

func merge(doc, part *huma.OpenAPI) error {
	for path, item := range part.Paths {
		into := doc.Paths[path]
		if into == nil {
			doc.Paths[path] = item
			continue
		}
		for _, method := range methods {
			to, from := operationOf(into, method), operationOf(item, method)
			if *to != nil && *from != nil {
				return fmt.Errorf("%s %s is described twice", method, path)
			}
			if *from != nil {
				*to = *from
			}
		}
	}
	// Only names that were used are in Map; the same name is the same type.
	theirs, ours := part.Components.Schemas.Map(), doc.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if ours[name] != nil && mustJSON(ours[name]) != mustJSON(theirs[name]) {
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

// escaped is JSON in which what cannot be seen is written as an escape: patterns hold
// such characters. Beyond 16 bits it would take two, which readers of YAML refuse.
func escaped(text []byte) []byte {
	var out strings.Builder
	for _, r := range string(text) {
		if r < utf8.RuneSelf || r > math.MaxUint16 {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return []byte(out.String())
}
