package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

var (
	errURL  = fault.New(fault.Malformed, "url_invalid", "The URL is not valid UTF-8, holds a NUL, or has a broken escape.")
	errBody = fault.New(fault.Malformed, "request_malformed", "The request cannot be read: its body is no base64.")
)

// newRequest makes the request that a server would have read off the connection. Path and
// query are as the client sent them. A header that came more than once is one value with
// commas, as Lambda sends it: that is the same for headers that are lists, and spoils the
// others (RFC 9110, 5.3).
//
// The peer is the event's source address, which Lambda or API Gateway vouch for. Its port
// is unknown, and 0. X-Forwarded-For is passed on for TRUSTED_PROXIES.
func newRequest(ctx context.Context, function string, e events.LambdaFunctionURLRequest) (*http.Request, error) {
	path, err := url.PathUnescape(e.RawPath)
	if err != nil || !strings.HasPrefix(e.RawPath, "/") {
		return nil, errURL
	}
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return nil, errBody
		}
	}
	h := e.RequestContext.HTTP
	r := &http.Request{
		Method: h.Method,
		// EscapedPath is RawPath, byte for byte, where that is an escape of Path.
		URL:   &url.URL{Scheme: "http", Host: function, Path: path, RawPath: e.RawPath, RawQuery: e.RawQueryString},
		Proto: h.Protocol, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Host:       e.RequestContext.DomainName,
		RemoteAddr: net.JoinHostPort(h.SourceIP, "0"),
	}
	var ok bool
	if r.ProtoMajor, r.ProtoMinor, ok = http.ParseHTTPVersion(h.Protocol); !ok {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	}
	for name, value := range e.Headers {
		r.Header.Set(name, value)
	}
	// The list is the client's cookies, each once; a function URL's headers may have
	// them a second time.
	if len(e.Cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	for _, name := range hopByHop {
		r.Header.Del(name)
	}
	r.Header.Del("Host") // as in net/http
	return r.WithContext(ctx), nil
}

// hopByHop are headers about a connection, which does not exist here, and about a length
// that Lambda finds out itself.
var hopByHop = []string{"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
