package fn

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// StreamWrite is how long the reader of a stream may take for one write. The server's own
// limit is for whole answers.
const StreamWrite = 10 * time.Second

// Events is an open stream of server-sent events.
type Events struct {
	w          http.ResponseWriter
	connection *http.ResponseController
}

// HandleStream registers a handler for a route that answers with server-sent
// events (text/event-stream). open may still refuse with an error; follow then
// sends until it returns, which ends the stream. HEAD is answered without either.
// example is what it may send, for OpenAPI.
func HandleStream[I, S any](e *Env, route Route, example string, open func(context.Context, *I) (S, error), follow func(context.Context, *Events, S)) {
	Handle(e, route, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		state, err := open(ctx, in)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			_, w := humago.Unwrap(c)
			events := &Events{w, http.NewResponseController(w)}
			// The server's limits are for answers that are sent at once. In this process
			// there is no connection to set them on.
			_ = events.connection.SetReadDeadline(time.Time{})
			beginStream(w)
			follow(ctx, events, state)
		}}, nil
	}, func(o *huma.Operation, _ huma.Registry) {
		o.Middlewares = append(o.Middlewares, headOfStream)
		o.Responses = map[string]*huma.Response{"200": {
			Description: "A stream of server-sent events that ends after a few minutes; connect again with Last-Event-ID.",
			Headers:     map[string]*huma.Param{"X-Accel-Buffering": {Description: "Asks proxies to pass events on at once.", Required: true, Schema: &huma.Schema{Type: "string", Const: "no"}}},
			Content:     map[string]*huma.MediaType{"text/event-stream": {Example: example}},
		}}
	})
}

// headOfStream answers HEAD, which ServeMux takes for GET: what open would hold is
// given back at the end of follow only.
func headOfStream(c huma.Context, next func(huma.Context)) {
	if c.Method() != http.MethodHead {
		next(c)
		return
	}
	_, w := humago.Unwrap(c)
	beginStream(w)
}

func beginStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // asks proxies such as nginx to pass events on at once
	w.WriteHeader(http.StatusOK)
}

// Send sends one event. Its data is JSON, which has no line break. An error means
// that the reader is gone.
func (s *Events) Send(id, event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, event, text))
}

// SendWithoutID is Send without an id: a reader that reconnects continues after the last id, and
// gets this again if it still holds.
func (s *Events) SendWithoutID(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, text))
}

// Begin sets how long the reader waits before it reconnects, and the id after which it
// continues until something is sent; "" leaves that id as it is.
func (s *Events) Begin(id string, retry time.Duration) error {
	text := fmt.Sprintf("retry: %d\n\n", retry.Milliseconds())
	if id != "" {
		text = "id: " + id + "\n" + text
	}
	return s.write(text)
}

// KeepAlive keeps proxies from thinking that the stream is dead, and finds out
// whether the reader is gone.
func (s *Events) KeepAlive() error { return s.write(":\n\n") }

func (s *Events) write(text string) error {
	_ = s.connection.SetWriteDeadline(time.Now().Add(StreamWrite))
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.connection.Flush()
}
