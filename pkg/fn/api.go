package fn

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// api is a function's huma API: typed requests, validation, OpenAPI.
type api struct{ huma.API }

func newAPI(mux *http.ServeMux) *api {
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: DecodeJSON}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI:    "3.1.0",
			Info:       &huma.Info{},
			Components: &huma.Components{Schemas: newSchemas()},
		},
		// "json" stands for every +json, such as problems.
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
	return &api{humago.New(mux, config)}
}

// huma is configured by package variables; this package is its only user.
func init() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return newProblem(status, message, errs)
	}
}

var codes = map[int]struct{ code, detail string }{
	http.StatusBadRequest:            {"request_malformed", "The request cannot be read."},
	http.StatusRequestEntityTooLarge: {"body_too_large", "The body is larger than 64 KiB."},
	http.StatusUnsupportedMediaType:  {"content_type_unsupported", "Send the body as application/json."},
	http.StatusUnprocessableEntity:   {"request_invalid", "The request was read, but these parts of it are not acceptable."},
	http.StatusRequestTimeout:        {"body_timeout", "The body did not arrive in time."},
}

// newProblem makes a problem of what huma found wrong. Bodies and values are
// left out: they are the caller's, and may be secret.
func newProblem(status int, message string, errs []error) huma.StatusError {
	for _, err := range errs {
		if p, ok := errors.AsType[*problem.Problem](err); ok {
			return p
		}
	}
	if message == "cannot read request body" {
		// huma takes a body that breaks off for our fault.
		status = http.StatusBadRequest
	}
	known, ok := codes[status]
	if !ok {
		if status >= http.StatusInternalServerError {
			return problem.From(nil)
		}
		return problem.New(status, "request_invalid", message)
	}
	p := problem.New(status, known.code, known.detail)
	for _, err := range errs {
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			p.Errors = append(p.Errors, problem.Field{Location: d.Location, Message: d.Message})
		}
	}
	if len(errs) == 0 && message != "" && status == http.StatusBadRequest {
		p.Detail = strings.ToUpper(message[:1]) + message[1:] + "."
	}
	return p
}

// Handle registers a typed handler for a route: the caller is identified and has
// one of the route's roles, the body is strict JSON that fits I, and errors
// become problems. The handler has the function's timeout; that of a stream begins the
// stream in it. I and O are huma inputs and outputs.
func Handle[I, O any](e *Env, route Route, handler func(context.Context, *I) (*O, error), more ...func(*huma.Operation, huma.Registry)) {
	if !e.Serves(route) {
		return
	}
	operation := huma.Operation{
		OperationID: route.ID, Method: route.Method, Path: route.Path,
		Summary: route.Summary, Description: route.Description,
		Tags: []string{e.Function.Name},
		// huma refuses a body of exactly this many bytes.
		MaxBodyBytes: MaxBodyBytes + 1,
		Middlewares:  huma.Middlewares{e.admit(route)},
	}
	for _, m := range more {
		m(&operation, e.api.OpenAPI().Components.Schemas)
	}
	// e.api itself would hide huma's configuration from it.
	huma.Register(e.api.API, operation, func(ctx context.Context, in *I) (*O, error) {
		if !route.Stream {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, e.timeout())
			defer cancel()
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, e.problem(ctx, err)
		}
		return out, nil
	})
	definePrintable(e.api.OpenAPI())
}

// HandlePage registers the handler of a page: the caller is identified and has one of the
// route's roles.
func HandlePage(e *Env, route Route, handler http.HandlerFunc) {
	e.Mux.HandleFunc(route.Pattern(), func(w http.ResponseWriter, r *http.Request) {
		identity, err := e.Authorize(w, r, route)
		if err != nil {
			problem.Write(w, e.problem(r.Context(), err))
			return
		}
		ctx, cancel := context.WithTimeout(auth.WithIdentity(r.Context(), identity), e.timeout())
		defer cancel()
		handler(w, r.WithContext(ctx))
	})
}

// admit lets a request through whose caller may make it.
func (e *Env) admit(route Route) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(c)
		identity, err := e.Authorize(w, r, route)
		if err == nil {
			err = checkQuery(r.URL.Query(), c.Operation().Parameters)
		}
		if err == nil && route.hasBody() && !isJSON(c.Header("Content-Type")) {
			err = fault.New(fault.UnsupportedMedia, "content_type_unsupported", "Send the body with Content-Type: application/json.")
		}
		if err != nil {
			problem.Write(w, e.problem(c.Context(), err))
			return
		}
		next(huma.WithContext(c, auth.WithIdentity(c.Context(), identity)))
	}
}

// checkQuery refuses what huma lets pass: parameters that stand there twice, and empty ones,
// which it takes for missing ones although no number, and no value of a list, is empty.
func checkQuery(query url.Values, parameters []*huma.Param) error {
	for name, values := range query {
		if len(values) > 1 {
			return fault.New(fault.Invalid, "request_invalid", "The query parameter %q stands there more than once.", name)
		}
	}
	for _, p := range parameters {
		text := p.Schema.Type == huma.TypeString && p.Schema.Format == "" && p.Schema.Enum == nil
		if p.In == "query" && !text && query.Has(p.Name) && query.Get(p.Name) == "" {
			return fault.New(fault.Invalid, "request_invalid", "The query parameter %q is empty: leave it out, or give it a value.", p.Name)
		}
	}
	return nil
}

// Statement returns the caller that a statement of the gateway names for a call with
// this method and path, or auth.ErrStatement.
func (e *Env) Statement(text, method, path string) (auth.Identity, error) {
	if e.verifier == nil {
		return auth.Identity{}, auth.ErrStatement
	}
	return e.verifier.Verify(text, method, path)
}

// byStatement is the Authorize of all functions but the gateway.
func (e *Env) byStatement(_ http.ResponseWriter, r *http.Request, route Route) (auth.Identity, error) {
	identity, err := e.Statement(r.Header.Get(auth.StatementHeader), r.Method, r.URL.Path)
	if err == nil {
		err = route.Admit(identity)
	}
	return identity, err
}

// problem logs what the caller is not shown and returns what they are.
func (e *Env) problem(ctx context.Context, err error) *problem.Problem {
	p := problem.From(err)
	if p.Status >= http.StatusInternalServerError && fault.Of(err) != fault.Overloaded && ctx.Err() == nil {
		e.Logger().ErrorContext(ctx, "request failed", "status", p.Status, "error", err.Error())
	}
	return p
}

// HasMediaType reports whether a Content-Type names media, whatever its parameters.
func HasMediaType(contentType, media string) bool {
	found, _, err := mime.ParseMediaType(contentType)
	return err == nil && found == media
}

func isJSON(contentType string) bool { return HasMediaType(contentType, "application/json") }
