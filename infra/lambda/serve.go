package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

const (
	// answerMargin is the part of an invocation's time that is kept for its answer:
	// Lambda kills a process that is late, and the client gets nothing.
	answerMargin = time.Second
	// apiGatewayTimeout is how long an HTTP API waits; it cannot be more than 30 s.
	apiGatewayTimeout = 29 * time.Second
)

// urlDomain is in the name of every function URL, also behind a custom domain, which
// leads to it through CloudFront.
const urlDomain = ".lambda-url."

// serve answers an HTTP event. A function URL gets its answer as a stream, so its
// InvokeMode must be RESPONSE_STREAM; an HTTP API takes whole answers only.
func (a *adapter) serve(ctx context.Context, e events.LambdaFunctionURLRequest) (any, error) {
	streams := strings.Contains(e.RequestContext.DomainName, urlDomain)
	ctx, cancel := beforeDeadline(ctx)
	if !streams {
		ctx, cancel = shorten(ctx, cancel)
	}
	response := a.respond(ctx, e) //nolint:bodyclose // stream and whole close it
	if streams {
		return stream(response, cancel), nil
	}
	defer cancel()
	answer, err := whole(response, cancel)
	if err != nil {
		a.log.ErrorContext(ctx, "answer lost", "error", err.Error())
		refused := refusal(a.front, err)
		defer refused.Body.Close()
		return whole(refused, cancel)
	}
	return answer, nil
}

// beforeDeadline returns a context that ends while there is time to answer.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-answerMargin))
}

// shorten makes ctx end before an HTTP API gives up.
func shorten(ctx context.Context, cancel context.CancelFunc) (context.Context, context.CancelFunc) {
	ctx, also := context.WithTimeout(ctx, apiGatewayTimeout-answerMargin)
	return ctx, func() { also(); cancel() }
}

// respond lets the function answer, and answers itself when that takes too long.
func (a *adapter) respond(ctx context.Context, e events.LambdaFunctionURLRequest) *http.Response {
	r, err := newRequest(ctx, a.front, e)
	if err != nil {
		return refusal(a.front, err)
	}
	response, err := a.local.RoundTrip(r)
	if errors.Is(err, context.DeadlineExceeded) {
		err = problem.New(http.StatusGatewayTimeout, "timeout",
			"It took too long; the request may have been done: send it again with the same key.")
	}
	if err != nil {
		a.log.ErrorContext(ctx, "no answer", "error", err.Error())
		return refusal(a.front, err)
	}
	if r.Method == http.MethodHead {
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	return response
}

// refusal is an answer of the adapter's own.
func refusal(function string, err error) *http.Response {
	own := transport.Local{function: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		problem.Write(w, err)
	})}
	r, _ := http.NewRequest(http.MethodGet, "http://"+function+"/", nil) // a name of the registry
	response, _ := own.RoundTrip(r)                                      // it has no error without a context that ends
	return response
}
