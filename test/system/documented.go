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

// Answers is what was answered, by operation and status.
type Answers struct {
	mutex    sync.Mutex
	seen     map[string]bool
	StandIns bool // functions are replaced, by ones that answer as none does
}

// Saw reports whether an operation has been answered with status.
func (a *Answers) Saw(operation string, status int) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.seen[fmt.Sprint(operation, " ", status)]
}

// clientGone is for the log: the client hung up.
const clientGone = 499

// documented is handler, whose every answer the document must have: status, headers and
// body, and, when the request was taken, what was sent.
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
			return // there was no answer, or nobody to get it
		}
		if bytes.Contains(watched.body, []byte(`"route_not_found"`)) {
			return // it is switched off
		}
		wrong := d.wrong(o, r.Method, watched.status, watched.header, watched.body)
		if watched.status < http.StatusMultipleChoices {
			wrong = append(wrong, d.refused(o, asked, sent.Bytes())...)
		}
		for _, w := range wrong {
			t.Errorf("%s %s: %d %.300s: off the document: %s", r.Method, r.URL, watched.status, watched.body, w)
		}
		seen.mutex.Lock()
		defer seen.mutex.Unlock()
		seen.seen[fmt.Sprint(o.ID, " ", watched.status)] = true
	})
}

// watchedWriter keeps what is answered, unless it is a stream.
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
