package functions_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// apiDocument is the OpenAPI document, by which every answer of every test is checked.
type apiDocument struct {
	whole      map[string]any
	mux        *http.ServeMux // finds the operation of a request
	operations map[string]*documentedOperation

	mutex    sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

type documentedOperation struct {
	id, method, path string
	parameters       []any
	pointer          string // to the operation in the document
}

var openAPI = sync.OnceValues(func() (*apiDocument, error) {
	text, err := fn.OpenAPI(functions.All)
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &apiDocument{
		whole: parsed.(map[string]any), mux: http.NewServeMux(), operations: map[string]*documentedOperation{},
		compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{},
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", parsed); err != nil {
		return nil, err
	}
	for path, item := range d.whole["paths"].(map[string]any) {
		for method, value := range item.(map[string]any) {
			o := &documentedOperation{
				method: strings.ToUpper(method), path: path,
				pointer: "/paths/" + escapePointer(path) + "/" + method,
			}
			o.id = value.(map[string]any)["operationId"].(string)
			o.parameters, _ = value.(map[string]any)["parameters"].([]any)
			d.operations[o.method+" "+path] = o
			d.mux.HandleFunc(o.method+" "+path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return d, nil
})

func escapePointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// at returns the object at a JSON pointer, and where it is once references are followed.
func (d *apiDocument) at(pointer string) (map[string]any, string) {
	var value any = d.whole
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
		return d.at(strings.TrimPrefix(reference, "#"))
	}
	return object, pointer
}

// fits returns what is wrong with a value by the schema at pointer, "" for nothing.
func (d *apiDocument) fits(pointer string, value any) string {
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

// fitsText is fits for a header or parameter.
func (d *apiDocument) fitsText(pointer, text string) string {
	schema, _ := d.at(pointer)
	var value any = text
	if schema["type"] == "integer" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err.Error()
		}
		value = n
	}
	return d.fits(pointer, value)
}

// fitsBody is fits for a body; what is not JSON is a text.
func (d *apiDocument) fitsBody(pointer, media string, body []byte) string {
	if !strings.HasSuffix(media, "json") {
		return d.fits(pointer, string(body))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	return d.fits(pointer, value)
}

// operation returns which operation a request is; nil for a page, a path that the
// document has not, or a method that the path has not.
func (d *apiDocument) operation(r *http.Request) *documentedOperation {
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != escaped {
		return nil
	}
	_, pattern := d.mux.Handler(r)
	return d.operations[pattern]
}

// ofTransport are headers of the connection or the host, which no operation answers.
var ofTransport = []string{"Connection", "Content-Length", "Content-Type", "Date", "Strict-Transport-Security", "Transfer-Encoding"}

// wrong returns what an answer has that the document lacks, and what it lacks that the
// document has.
func (d *apiDocument) wrong(o *documentedOperation, method string, status int, header http.Header, body []byte) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	response, pointer := d.at(o.pointer + "/responses/" + strconv.Itoa(status))
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
		one, where := d.at(pointer + "/headers/" + name)
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
	content, where := d.at(pointer + "/content/" + escapePointer(media))
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

// refused returns what is wrong with a request that was taken, by the document.
func (d *apiDocument) refused(o *documentedOperation, r *http.Request, body []byte) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	query := r.URL.Query()
	for i := range o.parameters {
		pointer := fmt.Sprintf("%s/parameters/%d", o.pointer, i)
		p := o.parameters[i].(map[string]any)
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
	if described, _ := d.at(o.pointer + "/requestBody"); described != nil {
		media, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
		if content, where := d.at(o.pointer + "/requestBody/content/" + escapePointer(media)); content == nil {
			say("the document takes no body of type %q", media)
		} else if why := d.fitsBody(where+"/schema", media, body); why != "" {
			say("body: %s", why)
		}
	}
	return wrong
}

// answers is what was answered, by operation and status.
type answers struct {
	mutex    sync.Mutex
	seen     map[string]bool
	standIns bool // functions are replaced, by ones that answer as none does
}

func (a *answers) saw(operation string, status int) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.seen[fmt.Sprint(operation, " ", status)]
}

// clientGone is for the log: the client hung up.
const clientGone = 499

// documented is handler, whose every answer the document must have: status, headers and
// body, and, when the request was taken, what was sent.
func documented(t testing.TB, handler http.Handler, seen *answers) http.Handler {
	t.Helper()
	d, err := openAPI()
	must(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := d.operation(r)
		if o == nil || seen.standIns {
			handler.ServeHTTP(w, r)
			return
		}
		var sent bytes.Buffer
		asked := r.Clone(r.Context())
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, &sent), r.Body}
		watched := &watchedWriter{ResponseWriter: w}
		handler.ServeHTTP(watched, r)
		if watched.header == nil || watched.status == clientGone {
			return // there was no answer, or nobody to get it
		}
		if bytes.Contains(watched.body, []byte(`"route_not_found"`)) {
			return // it is switched off
		}
		wrong := d.wrong(o, r.Method, watched.status, watched.header, watched.body)
		if watched.status < http.StatusMultipleChoices {
			wrong = append(wrong, d.refused(o, asked, sent.Bytes())...)
		}
		for _, w := range wrong {
			t.Errorf("%s %s: %d %.300s: off the document: %s", r.Method, r.URL, watched.status, watched.body, w)
		}
		seen.mutex.Lock()
		defer seen.mutex.Unlock()
		seen.seen[fmt.Sprint(o.id, " ", watched.status)] = true
	})
}

// watchedWriter keeps what is answered, unless it is a stream.
type watchedWriter struct {
	http.ResponseWriter
	status int
	header http.Header // as it was sent
	body   []byte
}

func (w *watchedWriter) WriteHeader(status int) {
	if w.header == nil && status >= http.StatusOK {
		w.status, w.header = status, w.Header().Clone()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	if w.header == nil {
		w.WriteHeader(http.StatusOK)
	}
	if !strings.HasPrefix(w.header.Get("Content-Type"), "text/event-stream") {
		w.body = append(w.body, p...)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the writer below.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
