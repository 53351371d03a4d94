// Package transport reaches functions by name: in this process or over the network. A
// request's host is the name of the function.
package transport

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Local reaches functions in this process. Answers are buffered until the handler
// returns or flushes.
type Local map[string]http.Handler

var _ http.RoundTripper = Local{}

// RoundTrip runs the handler. When the request's context ends first, RoundTrip
// returns and the handler runs on until it notices.
func (l Local) RoundTrip(r *http.Request) (*http.Response, error) {
	handler, ok := l[r.URL.Host]
	if !ok {
		return nil, fmt.Errorf("there is no function %q in this process", r.URL.Host)
	}
	inner := r.Clone(r.Context())
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	inner.RequestURI = r.URL.RequestURI()
	w := &localWriter{header: http.Header{}, started: make(chan struct{})}
	onWorker(func() {
		defer w.finish()
		handler.ServeHTTP(w, inner)
	})
	select {
	case <-w.started:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: w.body, ContentLength: w.length, Request: r,
	}, nil
}

// workerIdle is how long a goroutine waits for its next call.
const workerIdle = 10 * time.Second

var waiting = make(chan func())

// onWorker runs do on a goroutine that already did such work, when one waits. Its stack
// has grown to what a request needs; growing that of a new goroutine each time costs a
// small request about a tenth of its CPU (BenchmarkLocal).
func onWorker(do func()) {
	select {
	case waiting <- do:
		return
	default:
	}
	go func() {
		idle := time.NewTimer(workerIdle)
		defer idle.Stop()
		for {
			do()
			idle.Reset(workerIdle)
			select {
			case do = <-waiting:
			case <-idle.C:
				return
			}
		}
	}()
}

// localWriter is the ResponseWriter of a local call.
type localWriter struct {
	header  http.Header
	status  int
	buffer  bytes.Buffer
	started chan struct{} // closed when sent, body and length are set
	once    sync.Once
	sent    http.Header
	body    io.ReadCloser
	length  int64
	stream  *io.PipeWriter // after the first flush
}

func (w *localWriter) Header() http.Header { return w.header }

func (w *localWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.sent = w.header.Clone()
	}
}

func (w *localWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.stream != nil {
		return w.stream.Write(p)
	}
	return w.buffer.Write(p)
}

// Flush sends what there is and turns the answer into a stream.
func (w *localWriter) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.stream != nil {
		return
	}
	reader, writer := io.Pipe()
	first := bytes.NewReader(bytes.Clone(w.buffer.Bytes()))
	w.stream = writer
	w.start(struct {
		io.Reader
		io.Closer
	}{io.MultiReader(first, reader), reader}, -1)
}

func (w *localWriter) start(body io.ReadCloser, length int64) {
	w.once.Do(func() {
		w.body, w.length = body, length
		close(w.started)
	})
}

func (w *localWriter) finish() {
	// A handler that hangs up on purpose panics; the panic must not leave this call.
	aborted := recover()
	if w.stream != nil {
		if aborted != nil {
			_ = w.stream.CloseWithError(io.ErrUnexpectedEOF)
			return
		}
		_ = w.stream.Close()
		return
	}
	if aborted != nil {
		w.status, w.sent = http.StatusBadGateway, http.Header{}
		w.buffer.Reset()
	}
	w.WriteHeader(http.StatusOK)
	w.start(io.NopCloser(&w.buffer), int64(w.buffer.Len()))
}
