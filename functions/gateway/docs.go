package gateway

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

//go:embed openapi.json
var openapi []byte

//go:embed docs.html
var docsHTML string

// registerDocs serves the description of the API, and a page made of it that
// loads nothing from elsewhere.
// session is the name of the session cookie.
func registerDocs(mux *http.ServeMux, limited func(http.HandlerFunc) http.HandlerFunc, session string) {
	document := bytes.ReplaceAll(openapi, []byte(fn.SessionCookie), []byte(session))
	page, err := renderDocs(document)
	mux.HandleFunc("GET /openapi.json", limited(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		w.Header().Set("Cache-Control", pageMaxAge)
		_, _ = w.Write(document) // the reader may be gone
	}))
	mux.HandleFunc("GET /docs", limited(func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			problem.Write(w, err)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Cache-Control", pageMaxAge)
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = w.Write(page)
	}))
}

// description holds the parts of an OpenAPI document that the page shows.
type description struct {
	Info struct{ Title, Description string }
	// Paths by path and method.
	Paths      map[string]map[string]operation
	Components struct {
		Schemas   map[string]schema
		Responses map[string]response
	}
}

type operation struct {
	OperationID          string `json:"operationId"`
	Summary, Description string
	Parameters           []parameter
	RequestBody          *struct{ Content map[string]media }
	Responses            map[string]response
	Method, Path         string `json:"-"`
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]media
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                schema
}

type media struct{ Schema schema }

type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Items       *schema
	AnyOf       []schema `json:"anyOf"`
	Properties  map[string]schema
	Required    []string
	Enum        []any
	Format      string
}

// Name is what the page calls the type, and Anchor where it explains it.
func (s schema) Name() string {
	switch {
	case s.Ref != "":
		return s.Anchor()
	case s.Items != nil:
		return "list of " + s.Items.Name()
	case len(s.AnyOf) > 0:
		names := make([]string, len(s.AnyOf))
		for i, one := range s.AnyOf {
			names[i] = one.Name()
		}
		return strings.Join(names, " or ")
	case len(s.Enum) > 0:
		names := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			text, _ := json.Marshal(value) // a value that came out of JSON
			names[i] = string(text)
		}
		return strings.Join(names, " or ")
	}
	switch t := s.Type.(type) {
	case string:
		return strings.TrimSpace(t + " " + s.Format)
	case []any:
		names := make([]string, len(t))
		for i, value := range t {
			names[i], _ = value.(string)
		}
		return strings.Join(names, " or ") + " " + s.Format
	}
	return "any"
}

// Anchor returns the anchor of the type that s or its items refer to, "" for a plain
// type.
func (s schema) Anchor() string {
	if s.Items != nil {
		return s.Items.Anchor()
	}
	if len(s.AnyOf) > 0 {
		return s.AnyOf[0].Anchor()
	}
	return nameIn(s.Ref)
}

// nameIn is the name that a reference ends with.
func nameIn(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

func (s schema) Needs(name string) bool { return slices.Contains(s.Required, name) }

func renderDocs(document []byte) ([]byte, error) {
	var d description
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, err
	}
	var operations []operation
	for path, methods := range d.Paths {
		for method, o := range methods {
			o.Method, o.Path = strings.ToUpper(method), path
			for status, r := range o.Responses {
				if r.Ref != "" {
					o.Responses[status] = d.Components.Responses[nameIn(r.Ref)]
				}
			}
			operations = append(operations, o)
		}
	}
	slices.SortFunc(operations, func(a, b operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	page, err := template.New("docs").Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Info": d.Info, "Operations": operations, "Schemas": d.Components.Schemas, "Codes": problem.Codes})
	return out.Bytes(), err
}
