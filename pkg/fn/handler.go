package fn

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

func (rt *Runtime) build(f Function) (*Env, error) {
	env := &Env{rt: rt, Function: f, Settings: rt.Settings, Mux: http.NewServeMux()}
	env.api = newAPI(env.Mux)
	if rt.Settings.IdentityVerifyKeys != "" {
		verifier, err := auth.NewVerifier(f.Name, rt.Settings.IdentityVerifyKeys)
		if err != nil {
			return nil, err
		}
		env.verifier = verifier
	}
	env.Authorize = env.byStatement
	env.registerHealth()
	if err := errors.Join(append([]error{f.New(env)}, env.refused...)...); err != nil {
		return nil, fmt.Errorf("function %s: %w", f.Name, err)
	}
	return env, nil
}

// httpsOnly makes browsers come by https for a year (RFC 6797). Other hosts of the
// domain are not ours to decide about, so neither includeSubDomains nor preload.
const httpsOnly = "max-age=31536000"

// wrap is what every request meets first.
func (e *Env) wrap() (http.Handler, error) {
	log := e.Logger()
	e.Mux.HandleFunc(anyPath, notFound(e.Mux))
	overHTTPS := e.Function.Public && strings.HasPrefix(e.Settings.PublicURL, "https://")
	handle := func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // how a handler hangs up on purpose
			}
			log.ErrorContext(r.Context(), "panic", "error", fmt.Sprint(p), "stack", string(debug.Stack()))
			problem.Write(w, fmt.Errorf("panic: %v", p))
		}()
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if overHTTPS {
			h.Set("Strict-Transport-Security", httpsOnly)
		}
		if err := readable(r); err != nil {
			problem.Write(w, err)
			return
		}
		if !clean(r) {
			problem.Write(w, errNoRoute)
			return
		}
		e.Mux.ServeHTTP(w, r)
	}
	if !e.Function.Public {
		return e.observe(http.HandlerFunc(handle))
	}
	return e.observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		logged(log, w, r, func(w http.ResponseWriter) { handle(w, r) })
	}))
}

// clean reports whether ServeMux takes the path as it is. It would redirect others,
// and clients would lose their body and token on the way.
func clean(r *http.Request) bool {
	escaped := r.URL.EscapedPath()
	return strings.HasPrefix(escaped, "/") && path.Clean(escaped) == escaped
}

// readable refuses paths and queries that no store could hold.
func readable(r *http.Request) error {
	if r.URL.RawQuery == "" && r.URL.RawPath == "" && isPlain(r.URL.Path) {
		return nil
	}
	_, err := url.ParseQuery(r.URL.RawQuery)
	query, _ := url.QueryUnescape(r.URL.RawQuery)
	if err != nil || !utf8.ValidString(query) || !utf8.ValidString(r.URL.Path) ||
		strings.ContainsRune(query, 0) || strings.ContainsRune(r.URL.Path, 0) {
		return fault.New(fault.Malformed, "url_invalid", "The URL is not valid UTF-8, holds a NUL, or has a broken escape.")
	}
	return nil
}

// isPlain reports whether text is printable ASCII.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

var errNoRoute = fault.New(fault.NotFound, "route_not_found", "There is nothing at this path; /docs lists what there is.")

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// anyPath is the pattern of what no route takes.
const anyPath = "/"

// notFound answers what no route takes: 405 with Allow where another method
// would do, 404 otherwise.
func notFound(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "" // of the log: it is no route
		var allowed []string
		for _, method := range methods {
			probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
			if _, pattern := mux.Handler(probe); pattern != anyPath {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			problem.Write(w, errNoRoute)
			return
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem.Write(w, problem.New(http.StatusMethodNotAllowed, "method_not_allowed", "This path takes "+strings.Join(allowed, ", ")+"."))
	}
}
