package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

func (g *gateway) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      g.invoke,
		ModifyResponse: answered,
		ErrorHandler:   g.unreachable,
		BufferPool:     &buffers{sync.Pool{New: func() any { return new([copyBytes]byte) }}},
	}
}

// copyBytes holds most answers whole. The proxy's default is to allocate 32 KiB for each.
const copyBytes = 8 << 10

// buffers is an httputil.BufferPool.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte { return b.pool.Get().(*[copyBytes]byte)[:] }

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[copyBytes]byte)(buffer)) }

// forward passes a request on to f, with a statement that caller sent it.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request, f fn.Function, caller auth.Identity) {
	statement, err := g.signer.Sign(auth.Call{Function: f.Name, Method: r.Method, Path: r.URL.Path}, caller)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), f.Timeout)
	defer cancel()
	out := r.WithContext(context.WithValue(ctx, targetKey{}, f.Name))
	out.Header, out.Host = passOn(r.Header, statement), f.Name
	if function := g.env.Here(f.Name); function != nil {
		g.callHere(w, out, function)
		return
	}
	// The function sets these itself, and the proxy adds what it gets.
	w.Header().Del("Cache-Control")
	w.Header().Del("X-Content-Type-Options")
	g.proxy.ServeHTTP(w, out)
}

// callHere has a function of this process write its answer itself.
func (g *gateway) callHere(w http.ResponseWriter, r *http.Request, function http.Handler) {
	own := &ownAnswer{writer: w, ctx: r.Context()}
	defer func() {
		if p := recover(); p != nil && own.begun {
			panic(p)
		} else if p != nil {
			own.instead = fmt.Errorf("it ended with: %v", p)
		}
		switch {
		case own.instead != nil:
			w.Header().Del("WWW-Authenticate")
			w.Header().Del("Retry-After")
			g.unreachable(w, r, own.instead)
		case !own.begun:
			w.WriteHeader(http.StatusOK)
		}
	}()
	function.ServeHTTP(own, r)
}

// ownAnswer is where a function of this process writes its answer to. Some answers stay
// here, as they do on their way from another process: a 401, see errNotBelieved, and a
// failure after the caller has gone or the function's time is over. It has no connection
// to set deadlines on, as functions in other processes have none to the caller.
type ownAnswer struct {
	writer  http.ResponseWriter
	ctx     context.Context
	begun   bool
	instead error // of an answer that stays here
}

func (o *ownAnswer) Header() http.Header { return o.writer.Header() }

func (o *ownAnswer) WriteHeader(status int) {
	switch {
	case o.begun || o.instead != nil:
	case status == http.StatusUnauthorized:
		o.instead = errNotBelieved
	case status >= http.StatusInternalServerError && o.ctx.Err() != nil:
		o.instead = o.ctx.Err()
	default:
		o.begun = true
		o.writer.WriteHeader(status)
	}
}

func (o *ownAnswer) Write(text []byte) (int, error) {
	if o.WriteHeader(http.StatusOK); o.instead != nil {
		return len(text), nil
	}
	return o.writer.Write(text)
}

// FlushError sends what was written of a stream.
func (o *ownAnswer) FlushError() error {
	if o.WriteHeader(http.StatusOK); o.instead != nil {
		return nil
	}
	return http.NewResponseController(o.writer).Flush()
}

// answered checks a function's answer before it is passed on.
func answered(response *http.Response) error {
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		response.Body = &stream{response.Body, response.Request.Context()}
	}
	if err := refused(response); err != nil {
		return err
	}
	return between(response)
}

// between turns an error of a platform's proxy, between us and the function, into one of
// ours: proxies answer in plain text when a function takes too long (504), is overloaded
// or is missing (404, 502, 503). Functions answer errors as problems, those
// with pages as pages, which have a policy.
func between(response *http.Response) error {
	page, _ := response.Request.Context().Value(pageKey{}).(bool)
	switch {
	case page && response.Header.Get("Content-Security-Policy") != "" && fn.HasMediaType(response.Header.Get("Content-Type"), "text/html"):
		return nil
	case response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusNotFound || fn.HasMediaType(response.Header.Get("Content-Type"), problem.ContentType):
		return nil
	case response.StatusCode == http.StatusGatewayTimeout:
		return fmt.Errorf("a proxy before it answered %s: %w", response.Status, context.DeadlineExceeded)
	}
	return fmt.Errorf("a proxy before it answered %s", response.Status)
}

// stream is the body of a live stream. One that the gateway ends reads as complete, not
// as broken off.
type stream struct {
	io.ReadCloser
	ctx context.Context
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && s.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// forwardStream is forward for an answer that lasts minutes. It ends with the caller's
// session or token, and when the process shuts down.
func (g *gateway) forwardStream(w http.ResponseWriter, r *http.Request, f fn.Function, caller auth.Identity) {
	leave, err := g.openStream(r, caller)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer leave()
	reader := &patient{w, http.NewResponseController(w)}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.env.Life(), func() {
		cancel()
		reader.wait(lastWrite)
	})()
	if len(r.Header.Values("Authorization")) > 0 {
		access, err := g.bearer.Identify(r)
		if err != nil { // it was good a moment ago
			g.refuse(w, r, err)
			return
		}
		defer time.AfterFunc(time.Until(access.Expiry), cancel).Stop()
	} else {
		defer g.sessions.Watch(g.cookies.session(r), cancel)()
	}
	g.forward(reader, r.WithContext(ctx), f, caller)
	reader.wait(fn.StreamWrite) // for the end of the stream, which is written after this
}

// lastWrite replaces fn.StreamWrite when the process ends.
const lastWrite = time.Second

// patient writes to the reader of a stream.
type patient struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (p *patient) wait(d time.Duration) { _ = p.connection.SetWriteDeadline(time.Now().Add(d)) }

func (p *patient) Write(text []byte) (int, error) {
	p.wait(fn.StreamWrite)
	return p.ResponseWriter.Write(text)
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// pageKey is the key of whether the route is a page's, in a request's context.
type pageKey struct{}

// targetKey is the key of the function's name in a request's context.
type targetKey struct{}

// passedOn are the headers that functions get; "ce-" headers are passed on too.
var passedOn = []string{"Accept", "Content-Type", "If-Match", "If-None-Match", "Last-Event-Id", idempotency.Header}

// passOn returns the headers of a request that a function gets, with the statement of the
// caller. It runs before the proxy sees the request, so headers of one connection
// (Connection, Upgrade) stay between the caller and the gateway.
func passOn(in http.Header, statement string) http.Header {
	header := http.Header{auth.StatementHeader: {statement}}
	for name, values := range in {
		if slices.Contains(passedOn, name) || strings.HasPrefix(name, "Ce-") {
			header[name] = values
		}
	}
	return header
}

func rewrite(pr *httputil.ProxyRequest) {
	function, _ := pr.In.Context().Value(targetKey{}).(string)
	pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", function, function
	telemetry.Inject(pr.In.Context(), pr.Out.Header)
}

// statusClientGone is what nginx calls "client closed request".
const statusClientGone = 499

// unreachable answers in place of a function that did not.
func (g *gateway) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	function, _ := r.Context().Value(targetKey{}).(string)
	switch {
	case errors.Is(err, context.Canceled):
		// The caller is gone; the status is only for the log, which must not count it as
		// ours.
		w.WriteHeader(statusClientGone)
	case errors.Is(err, context.DeadlineExceeded):
		problem.Write(w, problem.New(http.StatusGatewayTimeout, "timeout",
			"It took too long; the request may have been done: send it again with the same key."))
	default:
		g.env.Logger().ErrorContext(r.Context(), "function unreachable", "target", function, "error", err.Error())
		problem.Write(w, partAway(function, err))
	}
}
