package fn_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// HEAD answers with a stream's headers and opens none: only follow would release what open
// takes.
func TestHeadOpensNoStream(t *testing.T) {
	t.Parallel()
	var opened, followed atomic.Int64
	stream := fn.Function{Name: "f", New: func(e *fn.Env) error {
		e.Authorize = func(http.ResponseWriter, *http.Request, fn.Route) (auth.Identity, error) { return auth.Identity{}, nil }
		fn.HandleStream(e, fn.Route{ID: "stream", Method: http.MethodGet, Path: "/stream", Stream: true}, "",
			func(context.Context, *struct{}) (int64, error) { return opened.Add(1), nil },
			func(_ context.Context, events *fn.Events, _ int64) { followed.Add(1); _ = events.KeepAlive() })
		return nil
	}}
	runtime, err := setup(t, stream)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method string) *httptest.ResponseRecorder {
		w := do(runtime.Here["f"], method, "/stream", "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: %d %s, want 200 text/event-stream", method, w.Code, w.Header().Get("Content-Type"))
		}
		return w
	}
	for range 50 {
		ask(http.MethodHead)
	}
	if opened.Load() != 0 || followed.Load() != 0 {
		t.Errorf("50 HEADs opened %d streams and followed %d, want none", opened.Load(), followed.Load())
	}
	ask(http.MethodGet)
	if opened.Load() != 1 || followed.Load() != 1 {
		t.Errorf("a GET opened %d streams and followed %d, want 1 of both", opened.Load(), followed.Load())
	}
}
