package fn

import (
	"log/slog"
	"net/http"
	"time"
)

// logged writes one line a request: what the SLIs of docs/slo.md are counted by.
// Probes are left out.
func logged(log *slog.Logger, w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter)) {
	if isProbe(r.URL.Path) || !log.Enabled(r.Context(), slog.LevelInfo) {
		serve(w)
		return
	}
	started := time.Now()
	recorder := &statusWriter{ResponseWriter: w}
	defer func() {
		// The pattern that ServeMux found, not the path: paths hold ids of people.
		log.InfoContext(r.Context(), "request", "route", r.Pattern, "status", recorder.status,
			"ms", float64(time.Since(started).Microseconds())/1000)
	}()
	serve(recorder)
}

// statusWriter remembers the status that was sent.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the writer below.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
