package fn_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// A bug in a handler is a 500 that shows nothing, and ends no process.
func TestPanicIsHidden(t *testing.T) {
	t.Parallel()
	_, local := setup(t, []fn.Function{{Name: "buggy", New: func(e *fn.Env) error {
		e.Mux.HandleFunc("GET /bug", func(http.ResponseWriter, *http.Request) { panic("secret") })
		return nil
	}}})
	w := do(local["buggy"], http.MethodGet, "/bug", "")
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != problem.ContentType ||
		strings.Contains(w.Body.String(), "secret") || !json.Valid(w.Body.Bytes()) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := do(local["buggy"], http.MethodGet, fn.LivenessPath, ""); w.Code != http.StatusOK {
		t.Errorf("liveness: %d", w.Code)
	}
}

// A function that lacks a setting says so by its name, before anything starts.
func TestMissingSettings(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fn.Function{
		"DATABASE_URL":         {Name: "f", Domains: []string{"entitlement"}, Stores: []fn.Store{fn.Postgres}},
		"NATS_URL":             {Name: "f", Stores: []fn.Store{fn.NATS}},
		"REDIS_URL":            {Name: "f", Stores: []fn.Store{fn.Redis}},
		"SESSION_REDIS_URL":    {Name: "f", Public: true, Stores: []fn.Store{fn.Redis}},
		"OIDC_ISSUER":          {Name: "f", Public: true},
		"IDENTITY_SIGNING_KEY": {Name: "f", Public: true},
		"IDENTITY_VERIFY_KEYS": {Name: "f", Routes: []fn.Route{{}}},
	} {
		runtime, _ := setup(t, nil)
		if err := runtime.Missing(f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := runtime.Missing(fn.Function{Name: "needs nothing"}); err != nil {
			t.Error(err)
		}
	}
}
