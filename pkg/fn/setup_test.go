package fn_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// setup returns a process with functions that connect to nothing.
func setup(t testing.TB, functions []fn.Function, environment ...string) (*fn.Runtime, fn.Local) {
	t.Helper()
	values := map[string]string{}
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	loaded, err := settings.LoadFrom(values)
	if err != nil {
		t.Fatal(err)
	}
	runtime := fn.NewRuntime(loaded, slog.New(slog.DiscardHandler), functions)
	t.Cleanup(runtime.Close)
	local := fn.Local{}
	for _, f := range functions {
		handler, err := runtime.Handler(f)
		if err != nil {
			t.Fatal(err)
		}
		local[f.Name] = handler
	}
	runtime.Invoke = local
	return runtime, local
}

func do(handler http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// soon waits for something to happen.
func soon[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
	return v
}
