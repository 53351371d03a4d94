package system

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// Answers records which statuses each operation has answered.
type Answers struct {
	mutex    sync.Mutex
	seen     map[string]bool
	StandIns bool // functions are replaced, and their answers not checked
}

// Saw reports whether an operation has been answered with status.
func (a *Answers) Saw(operation string, status int) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.seen[fmt.Sprint(operation, " ", status)]
}

// clientGone is the status in the log when the client hung up.
const clientGone = 499

// documented wraps handler and checks each answer against the document, with status,
// headers and body, and each accepted request.
func documented(t testing.TB, handler http.Handler, seen *Answers) http.Handler {
	t.Helper()
	d, err := OpenAPI()
	kit.Must(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := d.operation(r)
		if o == nil || seen.StandIns {
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
			return // no answer, or nobody to receive it
		}
		if hidden, _ := d.At(o.Pointer + "/responses/404"); hidden == nil && bytes.Contains(watched.body, []byte(`"route_not_found"`)) {
			return // the route is switched off
		}
		wrong := d.wrong(o, r.Method, watched.status, watched.header, watched.body)
		if watched.status < http.StatusMultipleChoices {
			wrong = append(wrong, d.refused(o, asked, sent.Bytes())...)
		}
		for _, w := range wrong {
			t.Errorf("%s %s: %d %.300s: differs from the document: %s", r.Method, r.URL, watched.status, watched.body, w)
		}
		seen.mutex.Lock()
		defer seen.mutex.Unlock()
		seen.seen[fmt.Sprint(o.ID, " ", watched.status)] = true
	})
}

// watchedWriter records the answer, but not the body of a stream.
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
