package main

import (
	"cmp"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type alert struct {
	Name        string            `yaml:"alert"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []alert }
	}
	load(t, "rules.yaml", &rules)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Name != "" {
				all = append(all, rule)
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("rules.yaml has %d alerts, want 10 or more", len(all))
	}
	return all
}

func load(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each alert says what is broken, and links to the section of the runbook that says what
// to do.
func TestAlertsLeadToTheRunbook(t *testing.T) {
	t.Parallel()
	sections := map[string]string{}
	for _, section := range strings.Split(read(t, "../../docs/runbook.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		sections["docs/runbook.md#"+anchor(title)] = text
	}
	for _, a := range alerts(t) {
		if severity := a.Labels["severity"]; severity != "page" && severity != "ticket" {
			t.Errorf("%s: its severity is %q, want page or ticket", a.Name, severity)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", a.Name)
		}
		text, found := sections[a.Annotations["runbook_url"]]
		if !found {
			t.Errorf("%s: %q is no section", a.Name, a.Annotations["runbook_url"])
		} else if !strings.Contains(text, "`"+a.Name+"`") {
			t.Errorf("%s: its section of the runbook does not name it", a.Name)
		}
	}
}

// anchor is a heading's anchor, as GitHub makes it.
func anchor(title string) string {
	kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(kept, " ", "-")
}

// docs/slo.md lists each alert, with its severity and its section.
func TestAlertsAreDocumented(t *testing.T) {
	t.Parallel()
	var written, made []string
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| .* \\| \\[[^]]+\\]\\((runbook\\.md#[a-z0-9-]+)\\) \\|$")
	for _, found := range row.FindAllStringSubmatch(read(t, "../../docs/slo.md"), -1) {
		written = append(written, strings.Join(found[1:], " "))
	}
	for _, a := range alerts(t) {
		made = append(made, a.Name+" "+a.Labels["severity"]+" "+strings.TrimPrefix(a.Annotations["runbook_url"], "docs/"))
	}
	slices.Sort(written)
	slices.Sort(made)
	if !slices.Equal(written, made) {
		t.Errorf("docs/slo.md has the alerts\n%s\nwant those of rules.yaml\n%s", strings.Join(written, "\n"), strings.Join(made, "\n"))
	}
}

// Each alert is seen firing, and not firing, by promtool.
func TestAlertsHaveTests(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name  string      `yaml:"alertname"`
				Fires []yaml.Node `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	load(t, "rules_test.yaml", &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Fires) > 0
			silent[a.Name] = silent[a.Name] || len(a.Fires) == 0
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Name] || !silent[a.Name] {
			t.Errorf("%s is tested firing: %t, and silent: %t", a.Name, fires[a.Name], silent[a.Name])
		}
		delete(fires, a.Name)
	}
	for name := range fires {
		t.Errorf("there is no alert %s", name)
	}
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ RefID, Expr string }
	FieldConfig struct{ Defaults struct{ Unit string } }
}

// Grafana shows each panel, from the Prometheus that is chosen: none is hidden behind
// another, has another one's id, or lacks a query or its unit.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels     []panel
		Templating struct {
			List []struct{ Type, Query string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Templating.List) != 1 || dashboard.Templating.List[0].Type != "datasource" || dashboard.Templating.List[0].Query != "prometheus" {
		t.Errorf("its variables are %+v, want one datasource", dashboard.Templating.List)
	}
	ids := map[int]string{}
	for i, p := range dashboard.Panels {
		if other := ids[p.ID]; other != "" || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q has the id of %q, or no title", p.ID, p.Title, other)
		}
		ids[p.ID] = p.Title
		at := p.GridPos
		if at.W < 1 || at.H < 1 || at.X < 0 || at.X+at.W > 24 {
			t.Errorf("%s is not within the 24 columns: %+v", p.Title, at)
		}
		for _, other := range dashboard.Panels[:i] {
			if o := other.GridPos; at.X < o.X+o.W && o.X < at.X+at.W && at.Y < o.Y+o.H && o.Y < at.Y+at.H {
				t.Errorf("%s and %s cover each other", p.Title, other.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if cmp.Or(p.FieldConfig.Defaults.Unit, "none") == "none" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s has no unit, no query, or a datasource of its own: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			if target.Expr == "" || target.RefID == "" {
				t.Errorf("%s has an empty query", p.Title)
			}
		}
	}
}
