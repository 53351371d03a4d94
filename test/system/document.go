package system

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// Document is the OpenAPI document, against which every answer of every test is checked.
type Document struct {
	Whole      map[string]any
	mux        *http.ServeMux // finds a request's operation
	Operations map[string]*Operation

	mutex    sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// Operation is one method of one path in the document.
type Operation struct {
	ID, Method, Path string
	Parameters       []any
	Pointer          string // to the operation in the document
}

// OpenAPI returns the document of all functions.
var OpenAPI = sync.OnceValues(func() (*Document, error) {
	text, err := fn.OpenAPI(functions.All)
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &Document{
		Whole: parsed.(map[string]any), mux: http.NewServeMux(), Operations: map[string]*Operation{},
		compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{},
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", parsed); err != nil {
		return nil, err
	}
	for path, item := range d.Whole["paths"].(map[string]any) {
		for method, value := range item.(map[string]any) {
			o := &Operation{
				Method: strings.ToUpper(method), Path: path,
				Pointer: "/paths/" + EscapePointer(path) + "/" + method,
			}
			o.ID = value.(map[string]any)["operationId"].(string)
			o.Parameters, _ = value.(map[string]any)["parameters"].([]any)
			d.Operations[o.Method+" "+path] = o
			d.mux.HandleFunc(o.Method+" "+path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return d, nil
})

// EscapePointer makes a token part of a JSON pointer.
func EscapePointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// At returns the object at a JSON pointer and, after following references, its own
// pointer.
func (d *Document) At(pointer string) (map[string]any, string) {
	var value any = d.Whole
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch within := value.(type) {
		case map[string]any:
			value = within[token]
		case []any:
			n, _ := strconv.Atoi(token)
			value = within[n]
		default:
			return nil, pointer
		}
	}
	object, _ := value.(map[string]any)
	if reference, ok := object["$ref"].(string); ok && !strings.HasPrefix(reference, "#/components/schemas/") {
		return d.At(strings.TrimPrefix(reference, "#"))
	}
	return object, pointer
}

// Fits returns how value violates the schema at pointer, "" if it does not.
func (d *Document) Fits(pointer string, value any) string {
	d.mutex.Lock()
	schema := d.compiled[pointer]
	if schema == nil {
		var err error
		fragment := (&url.URL{Fragment: pointer}).EscapedFragment()
		if schema, err = d.compiler.Compile("openapi.json#" + fragment); err != nil {
			d.mutex.Unlock()
			return err.Error()
		}
		d.compiled[pointer] = schema
	}
	d.mutex.Unlock()
	if err := schema.Validate(value); err != nil {
		return err.Error()
	}
	return ""
}

// fitsText is Fits for a header or parameter.
func (d *Document) fitsText(pointer, text string) string {
	schema, _ := d.At(pointer)
	var value any = text
	if schema["type"] == "integer" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err.Error()
		}
		value = n
	}
	return d.Fits(pointer, value)
}

// fitsBody is Fits for a body; a body that is not JSON is a string.
func (d *Document) fitsBody(pointer, media string, body []byte) string {
	if !strings.HasSuffix(media, "json") {
		return d.Fits(pointer, string(body))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	return d.Fits(pointer, value)
}

// operation returns the operation of a request: nil for a page, and for a path or method
// that is not in the document.
func (d *Document) operation(r *http.Request) *Operation {
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != escaped {
		return nil
	}
	_, pattern := d.mux.Handler(r)
	return d.Operations[pattern]
}

// ofTransport are headers of the connection or the host, which no operation documents.
var ofTransport = []string{"Connection", "Content-Length", "Content-Type", "Date", "Strict-Transport-Security", "Transfer-Encoding"}

// wrong returns how an answer differs from what the document says of it.
func (d *Document) wrong(o *Operation, method string, status int, header http.Header, body []byte) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	response, pointer := d.At(o.Pointer + "/responses/" + strconv.Itoa(status))
	if response == nil {
		say("the document has no answer %d", status)
		return wrong
	}
	documented, _ := response["headers"].(map[string]any)
	for name := range header {
		if !slices.Contains(ofTransport, name) && !slices.ContainsFunc(slices.Collect(maps.Keys(documented)), func(known string) bool { return http.CanonicalHeaderKey(known) == name }) {
			say("the document has no header %s", name)
		}
	}
	for name := range documented {
		one, where := d.At(pointer + "/headers/" + name)
		values := header.Values(name)
		if one["required"] == true && len(values) == 0 {
			say("there is no header %s", name)
		}
		for _, value := range values {
			if why := d.fitsText(where+"/schema", value); why != "" {
				say("header %s: %s: %s", name, value, why)
			}
		}
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	content, where := d.At(pointer + "/content/" + EscapePointer(media))
	switch {
	case content == nil:
		say("the document has no body of type %q", media)
	case method != http.MethodHead && content["schema"] != nil:
		if why := d.fitsBody(where+"/schema", media, body); why != "" {
			say("body: %s", why)
		}
	}
	return wrong
}

// refused returns how a request that was accepted differs from what the document allows.
func (d *Document) refused(o *Operation, r *http.Request, body []byte) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	query := r.URL.Query()
	for i := range o.Parameters {
		pointer := fmt.Sprintf("%s/parameters/%d", o.Pointer, i)
		p := o.Parameters[i].(map[string]any)
		name := p["name"].(string)
		var values []string
		switch p["in"] {
		case "query":
			values = query[name]
			query.Del(name)
		case "header":
			values = r.Header.Values(name)
		default:
			continue
		}
		if p["required"] == true && len(values) == 0 {
			say("there is no %s", name)
		}
		for _, value := range values {
			if decoded, err := url.PathUnescape(value); err == nil && strings.HasPrefix(name, "ce-") {
				value = decoded
			}
			if why := d.fitsText(pointer+"/schema", value); why != "" && value != "" {
				say("%s: %s", name, why)
			}
		}
	}
	for name := range query {
		say("the document has no parameter %s", name)
	}
	if described, _ := d.At(o.Pointer + "/requestBody"); described != nil {
		media, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
		if content, where := d.At(o.Pointer + "/requestBody/content/" + EscapePointer(media)); content == nil {
			say("the document takes no body of type %q", media)
		} else if why := d.fitsBody(where+"/schema", media, body); why != "" {
			say("body: %s", why)
		}
	}
	return wrong
}
