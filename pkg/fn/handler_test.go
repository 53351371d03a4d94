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
	runtime, err := setup(t, fn.Function{Name: "buggy", New: func(e *fn.Env) error {
		e.Mux.HandleFunc("GET /bug", func(http.ResponseWriter, *http.Request) { panic("secret") })
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := do(runtime.Here["buggy"], http.MethodGet, "/bug", "")
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != problem.ContentType ||
		strings.Contains(w.Body.String(), "secret") || !json.Valid(w.Body.Bytes()) {
		t.Errorf("a panic was answered %d %v %s, want a problem with 500 and no secret", w.Code, w.Header(), w.Body)
	}
	if w := do(runtime.Here["buggy"], http.MethodGet, fn.LivenessPath, ""); w.Code != http.StatusOK {
		t.Errorf("liveness was answered %d after a panic, want 200", w.Code)
	}
}

// A function that lacks a setting does not start, and the error names the setting.
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
		if _, err := setup(t, f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a function that lacks %s starts with the error %v", name, err)
		}
	}
	if _, err := setup(t, fn.Function{Name: "needs nothing", New: func(*fn.Env) error { return nil }}); err != nil {
		t.Error(err)
	}
}

// A function may use only the stores and functions that the registry lists for it. Asking
// for another fails at the start: the stores' rights and some platforms' network would
// refuse it later.
func TestFunctionHasWhatTheRegistryLists(t *testing.T) {
	t.Parallel()
	for want, ask := range map[string]func(*fn.Env){
		"entitlement": func(e *fn.Env) { _, _ = e.Postgres("entitlement") },
		"nats":        func(e *fn.Env) { e.NATS() },
		"redis":       func(e *fn.Env) { _, _ = e.Redis() },
		"rabbitmq":    func(e *fn.Env) { e.RabbitMQ() },
		"settle":      func(e *fn.Env) { e.Waker("settle") },
		"calls":       func(e *fn.Env) { e.Invoke() },
	} {
		_, err := setup(t, fn.Function{Name: "greedy", Wakes: []string{"relay"}, New: func(e *fn.Env) error {
			e.Waker("relay")
			ask(e)
			return nil
		}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "greedy") {
			t.Errorf("a function that asks for %s, which the registry does not list, starts with the error %v", want, err)
		}
	}
}
