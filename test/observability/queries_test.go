//go:build observability

package observability_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// rare are the labels of metrics that the system below has no reason to count, and of
// Prometheus' own series of alerts.
var rare = map[string][]string{
	"ALERTS":                     {"alertname", "alertstate"},
	"consumer_redelivered_total": {"subject"},
	"limit_refused_total":        {"policy"},
	"mm_redis_errors_total":      {"script"},
	"session_events_total":       {"event"},
}

// Every query of the rules, the dashboard, the service levels and the runbook is read by
// Prometheus' own parser, and names only metrics that exist, with labels that they have.
func TestQueriesNameWhatExists(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "METRICS_ADDRESS=127.0.0.1:0")
	w := watch(t, s)
	work(t, s, people)
	kit.Eventually(t, "the rules have recorded how all budgets burn", func() bool { return len(w.series("slo:burn:rate3d")) == 4 })
	c := newChecker(t, w)

	queries := queries(t)
	if len(queries) < 80 {
		t.Errorf("only %d queries were found, want 80 or more", len(queries))
	}
	for _, q := range queries {
		for _, problem := range c.check(q.expr) {
			t.Errorf("%s: %s: %s", q.of, problem, q.expr)
		}
	}
	for _, mistake := range []struct{ query, says string }{
		{`sum(rate(outbox_backlog[5m])`, "unclosed left parenthesis"},
		{`max(outbox_backlogs)`, "there is no metric outbox_backlogs"},
		{`max by (domain) (outbox_backlog)`, "no label domain"},
		{`mm_queue_depth{queue="casual"}`, "no label queue"},
		{`rate(tick_duration_seconds[5m])`, "there is no metric tick_duration_seconds"},
		{`sum by (subject) (outbox_backlog)`, "no label subject"},
		{`consumer_lag and on (outbox) outbox_backlog`, "no label outbox"},
	} {
		if found := strings.Join(c.check(mistake.query), "\n"); !strings.Contains(found, mistake.says) {
			t.Errorf("%s: found %q, want %q", mistake.query, found, mistake.says)
		}
	}
}

// work has the system count one of almost everything.
func work(t *testing.T, s *system.System, people *system.People) {
	t.Helper()
	system.MoneyMoves(t, s, people)
	for _, name := range []string{"ann", "ben"} {
		s.Joined(people.Player(t, name), "casual", "k_"+name, "{}")
	}
	for _, function := range []string{"match", "announce", "notify", "deliver", "reconcile"} {
		s.Tick(function)
	}
}

type query struct{ of, expr string }

// queries are all that are written down.
func queries(t *testing.T) (all []query) {
	t.Helper()
	folder := observability(t)
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		kit.Must(t, err)
		return string(text)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	kit.Must(t, yaml.Unmarshal([]byte(read(folder, "rules.yaml")), &rules))
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			all = append(all, query{rule.Record + rule.Alert, rule.Expr})
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	kit.Must(t, json.Unmarshal([]byte(read(folder, "dashboard.json")), &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{panel.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")})
		}
	}
	// Blocks without a language are PromQL, a line each; so is what rates in the text.
	block, inline := regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```"), regexp.MustCompile("`([^`\n]*\\(rate\\([^`\n]*)`")
	for _, page := range []string{"slo.md", "runbook.md"} {
		text := read(folder, "..", "..", "docs", page)
		for _, found := range block.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(found[2]) {
				if found[1] == "" {
					all = append(all, query{page, line})
				}
			}
		}
		for _, found := range inline.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			all = append(all, query{page, found[1]})
		}
	}
	return all
}

type checker struct {
	watcher
	made   map[string]bool            // metrics that instruments make, and recorded ones
	labels map[string]map[string]bool // of metrics
}

func newChecker(t *testing.T, w watcher) *checker {
	c := &checker{w, map[string]bool{"up": true, "ALERTS": true}, map[string]map[string]bool{}}
	page, err := os.ReadFile(filepath.Join(observability(t), "..", "..", "docs", "metrics.md"))
	kit.Must(t, err)
	// make lint compares the page with the instruments.
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| `[^`]+` \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		suffixes := []string{""}
		if row[2] == "histogram" {
			suffixes = []string{"_bucket", "_count", "_sum"}
		}
		for _, suffix := range suffixes {
			c.made[row[1]+suffix] = true
		}
	}
	for metric, labels := range rare {
		for _, label := range labels {
			c.has(metric, label)
		}
	}
	for _, series := range w.series(`{__name__=~".+"}`) {
		metric := series["__name__"]
		for label := range series {
			c.has(metric, label)
		}
		if strings.HasPrefix(metric, "slo:") {
			c.made[metric] = true
		}
	}
	return c
}

func (c *checker) has(metric, label string) {
	if c.labels[metric] == nil {
		c.labels[metric] = map[string]bool{}
	}
	c.labels[metric][label] = true
}

// check returns what is wrong with a query.
func (c *checker) check(expr string) []string {
	var tree any
	if err := c.get("parse_query", url.Values{"query": {expr}}, &tree); err != nil {
		return []string{err.Error()}
	}
	var r reader
	r.read(tree)
	var problems []string
	for _, metric := range r.metrics {
		if !c.made[metric] && !strings.HasPrefix(metric, "go_") && !strings.HasPrefix(metric, "process_") {
			problems = append(problems, "there is no metric "+metric)
		}
	}
	for _, use := range r.uses {
		known := func(metric string) bool { return c.labels[metric][use.label] }
		if !use.made && !slices.ContainsFunc(use.metrics, known) {
			problems = append(problems, fmt.Sprintf("%q has no label %s", use.metrics, use.label))
		}
	}
	return problems
}

// reader collects what a tree of Prometheus' parser names.
type reader struct {
	metrics []string
	made    []string // labels that label_replace makes
	uses    []use
}

// use is a label that at least one of some metrics must have.
type use struct {
	label   string
	metrics []string
	made    bool
}

func (r *reader) read(tree any) {
	if list, ok := tree.([]any); ok {
		for _, item := range list {
			r.read(item)
		}
	}
	node, ok := tree.(map[string]any)
	if !ok {
		return
	}
	before, beforeMade := len(r.metrics), len(r.made)
	if name, _ := node["name"].(string); name != "" {
		r.metrics = append(r.metrics, name)
	}
	sides := [][]string{}
	for _, part := range []string{"expr", "param", "args", "lhs", "rhs"} {
		from := len(r.metrics)
		r.read(node[part])
		if part == "lhs" || part == "rhs" {
			sides = append(sides, r.metrics[from:])
		}
	}
	function, _ := node["func"].(map[string]any)
	if arguments, _ := node["args"].([]any); function["name"] == "label_replace" {
		label, _ := arguments[1].(map[string]any)["val"].(string)
		r.made = append(r.made, label)
	}
	made := r.made[beforeMade:]
	wants := func(label any, metrics []string) {
		name, _ := label.(string)
		r.uses = append(r.uses, use{name, metrics, slices.Contains(made, name)})
	}
	matchers, _ := node["matchers"].([]any)
	for _, matcher := range matchers {
		if label := matcher.(map[string]any)["name"]; label != "__name__" {
			wants(label, r.metrics[before:])
		}
	}
	grouping, _ := node["grouping"].([]any)
	for _, label := range grouping {
		wants(label, r.metrics[before:])
	}
	matching, _ := node["matching"].(map[string]any)
	joined, _ := matching["labels"].([]any)
	for _, label := range joined {
		for _, side := range sides {
			wants(label, side)
		}
	}
}
