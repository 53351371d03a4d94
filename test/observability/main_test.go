//go:build observability

// Package observability_test has a real Prometheus read the whole system with the rules of
// infra/observability, and a real collector carry its traces and metrics.
package observability_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/prometheus"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// every replaces the intervals of Prometheus, and how long conditions of alerts must hold.
const every = 500 * time.Millisecond

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// watcher is a Prometheus.
type watcher struct {
	t   *testing.T
	url string
}

// watch starts a Prometheus that reads the metrics of s, or of nobody if that is nil.
func watch(t *testing.T, s *system.System) watcher {
	t.Helper()
	targets := map[string]string{}
	if s != nil {
		metrics, err := s.Runtime.Metrics()
		kit.Must(t, err)
		at, err := metrics.Listen("127.0.0.1:0")
		kit.Must(t, err)
		targets["miniserver"] = at.String()
	}
	server, err := prometheus.Start(t.Context(), prometheus.Options{
		Dir: t.TempDir(), Program: tool(t, "prometheus"), Config: observability(t), Targets: targets, Every: every,
	})
	kit.Must(t, err)
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return watcher{t, server.URL()}
}

// tool is the path of a program that make test-observability builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	return filepath.Join(root, ".local", "bin", "tools", name)
}

func observability(t *testing.T) string {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	return filepath.Join(root, "infra", "observability")
}

// get asks Prometheus' API, and returns why it refuses the question.
func (w watcher) get(path string, query url.Values, data any) error {
	w.t.Helper()
	response, err := http.Get(w.url + "/api/v1/" + path + "?" + query.Encode())
	kit.Must(w.t, err)
	defer response.Body.Close()
	answer := struct {
		Data  any
		Error string
	}{Data: data}
	kit.Must(w.t, json.NewDecoder(response.Body).Decode(&answer))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", response.StatusCode, answer.Error)
	}
	return nil
}

// series are the labels of all series that match.
func (w watcher) series(match string) (found []map[string]string) {
	w.t.Helper()
	kit.Must(w.t, w.get("series", url.Values{"match[]": {match}}, &found))
	return found
}

// holds reports whether a condition is true of what was read last.
func (w watcher) holds(condition string) bool {
	w.t.Helper()
	var answer struct{ Result []any }
	kit.Must(w.t, w.get("query", url.Values{"query": {condition}}, &answer))
	return len(answer.Result) > 0
}

type alert struct {
	State       string
	Labels      map[string]string
	Annotations map[string]string
}

// firing are the alerts that fire, by name.
func (w watcher) firing() map[string]alert {
	w.t.Helper()
	var answer struct{ Alerts []alert }
	kit.Must(w.t, w.get("alerts", nil, &answer))
	found := map[string]alert{}
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			found[a.Labels["alertname"]] = a
		}
	}
	return found
}
