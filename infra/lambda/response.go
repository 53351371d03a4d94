package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// maxAnswer bounds an answer that is sent whole. Lambda takes 6 MB, in which the
// body is base64 or has its quotes escaped.
const maxAnswer = 4 << 20

var errTooLarge = fmt.Errorf("the answer has more than %d bytes, which Lambda does not take", maxAnswer)

// headers returns headers as Lambda takes them: cookies on their own, because they
// cannot be joined with commas.
func headers(h http.Header) (joined map[string]string, cookies []string) {
	joined = make(map[string]string, len(h))
	for name, values := range h {
		switch {
		case name == "Set-Cookie":
			cookies = values
		case !slices.Contains(hopByHop, name):
			joined[name] = strings.Join(values, ", ")
		}
	}
	return joined, cookies
}

// stream answers a function URL: what the function writes is sent when it flushes,
// or is done. end is called after the last byte.
func stream(response *http.Response, end context.CancelFunc) *events.LambdaFunctionURLStreamingResponse {
	joined, cookies := headers(response.Header)
	return &events.LambdaFunctionURLStreamingResponse{
		StatusCode: response.StatusCode, Headers: joined, Cookies: cookies,
		Body: &ending{response.Body, end},
	}
}

type ending struct {
	io.ReadCloser
	end context.CancelFunc
}

func (e *ending) Close() error {
	e.end()
	return e.ReadCloser.Close()
}

// whole answers an HTTP API, once the answer has ended. A stream of events would
// reach the client only then, so it is ended after its first event; the client
// connects again from there, as after the end of any other stream.
func whole(response *http.Response, end context.CancelFunc) (*events.APIGatewayV2HTTPResponse, error) {
	defer response.Body.Close()
	var body bytes.Buffer
	var source io.Reader = response.Body
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		source = &firstEvent{source, &body, end}
	}
	_, err := body.ReadFrom(io.LimitReader(source, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if body.Len() > maxAnswer {
		return nil, errTooLarge
	}
	joined, cookies := headers(response.Header)
	answer := &events.APIGatewayV2HTTPResponse{StatusCode: response.StatusCode, Headers: joined, Cookies: cookies, Body: body.String()}
	if !utf8.Valid(body.Bytes()) {
		answer.Body, answer.IsBase64Encoded = base64.StdEncoding.EncodeToString(body.Bytes()), true
	}
	return answer, nil
}

// firstEvent ends a stream after its first event. The lines that give the client its
// start position, or keep it waiting, have no data.
type firstEvent struct {
	io.Reader
	read *bytes.Buffer // what came before
	end  func()
}

func (f *firstEvent) Read(p []byte) (int, error) {
	if bytes.Contains(f.read.Bytes(), []byte("\ndata: ")) {
		f.end()
	}
	return f.Reader.Read(p)
}
