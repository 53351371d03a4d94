package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/miniserversystem/miniserver/pkg/fn/transport"
)

// adapter passes events to the functions of this process.
type adapter struct {
	local    transport.Local
	function string // FUNCTION, "" for all of them
	front    string // the function that HTTP goes to
	log      *slog.Logger
}

const (
	payloadFormat = "2.0" // of HTTP events
	scheduled     = "Scheduled Event"
)

// envelope has the fields that distinguish events.
type envelope struct {
	Version        string          `json:"version"`
	DetailType     string          `json:"detail-type"`
	Detail         json.RawMessage `json:"detail"`
	RequestContext struct {
		HTTP struct {
			Method string `json:"method"`
		} `json:"http"`
	} `json:"requestContext"`
}

// handle answers one invocation. An HTTP event is always answered, with a problem if
// need be; the errors of others fail the invocation, so that Lambda counts them.
func (a *adapter) handle(ctx context.Context, payload json.RawMessage) (any, error) {
	var e envelope
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, unknownEvent(payload)
	}
	switch {
	case e.Version == payloadFormat && e.RequestContext.HTTP.Method != "":
		var request events.LambdaFunctionURLRequest // an HTTP API's has the same fields
		if err := json.Unmarshal(payload, &request); err != nil {
			return nil, unknownEvent(payload)
		}
		return a.serve(ctx, request)
	case e.DetailType == scheduled:
		return a.tick(ctx, e.Detail)
	}
	return nil, unknownEvent(payload)
}

// maxNamed is how many fields of an unknown event its error names.
const maxNamed = 10

// unknownEvent names the fields of the event, but not their values.
func unknownEvent(payload json.RawMessage) error {
	var fields map[string]json.RawMessage
	has := "is no JSON object"
	if json.Unmarshal(bytes.TrimSpace(payload), &fields) == nil {
		names := slices.Sorted(maps.Keys(fields))
		has = "has " + strings.Join(names[:min(len(names), maxNamed)], ", ")
	}
	return failure("UnknownEvent", errors.New("this event is not taken, it "+has+
		"; taken are HTTP events of function URLs and HTTP APIs with payload format 2.0, "+
		`and EventBridge's with "detail-type":"Scheduled Event", which are ticks of FUNCTION or of "detail":{"function":"…"}`))
}

// failure is an error as the runtime reports it, with a name to find it by.
func failure(kind string, err error) error {
	return messages.InvokeResponse_Error{Type: kind, Message: err.Error()}
}

// detail is the detail of a scheduled event. EventBridge's rules send an object, its
// Scheduler by default a string with JSON in it.
type detail struct {
	Function string `json:"function"`
}

func readDetail(raw json.RawMessage) (detail, error) {
	var d detail
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("the detail of the scheduled event cannot be read: %w", err)
	}
	return d, nil
}
