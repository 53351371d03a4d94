package fn_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// setup returns a process with functions that connect to nothing.
func setup(t testing.TB, functions ...fn.Function) (*fn.Runtime, error) {
	t.Helper()
	loaded, err := settings.LoadFrom(map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	runtime := fn.NewRuntime(loaded, slog.New(slog.DiscardHandler), functions)
	t.Cleanup(runtime.Close)
	runtime.Invoke = runtime.Here
	return runtime, runtime.Host(functions...)
}

func do(handler http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}
