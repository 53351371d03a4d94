package prometheus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/miniserversystem/miniserver/infra/dev/home"
)

// What of the files is changed here; the rest goes through.
type (
	config struct {
		Global        map[string]any `yaml:"global"`
		RuleFiles     []string       `yaml:"rule_files"`
		ScrapeConfigs []scrape       `yaml:"scrape_configs"`
		Rest          map[string]any `yaml:",inline"`
	}
	scrape struct {
		Job     string         `yaml:"job_name"`
		Targets []targets      `yaml:"static_configs"`
		Rest    map[string]any `yaml:",inline"`
	}
	targets struct {
		Addresses []string `yaml:"targets"`
	}
	rules struct {
		Groups []group `yaml:"groups"`
	}
	group struct {
		Rules []map[string]any `yaml:"rules"`
		Rest  map[string]any   `yaml:",inline"`
	}
)

// configure writes its configuration and its rules.
func (p *Server) configure() error {
	var c config
	var r rules
	if err := errors.Join(p.read("prometheus.yaml", &c), p.read("rules.yaml", &r)); err != nil {
		return err
	}
	jobs := c.ScrapeConfigs
	c.RuleFiles, c.ScrapeConfigs = []string{p.file("-rules.yaml")}, nil
	for _, job := range jobs {
		if address := p.o.Targets[job.Job]; address != "" {
			job.Targets = []targets{{Addresses: []string{address}}}
			c.ScrapeConfigs = append(c.ScrapeConfigs, job)
		}
	}
	if len(c.ScrapeConfigs) != len(p.o.Targets) {
		return fmt.Errorf("prometheus.yaml has not all jobs of %v", p.o.Targets)
	}
	if p.o.Every > 0 {
		c.shorten(p.o.Every)
		r.shorten(p.o.Every)
	}
	return errors.Join(write(p.file(".yaml"), c), write(p.file("-rules.yaml"), r))
}

func (c *config) shorten(every time.Duration) {
	for _, setting := range []string{"scrape_interval", "scrape_timeout", "evaluation_interval"} {
		c.Global[setting] = duration(every)
	}
}

func (r *rules) shorten(every time.Duration) {
	for _, group := range r.Groups {
		for _, rule := range group.Rules {
			if _, waits := rule["for"]; waits {
				rule["for"] = duration(every)
			}
		}
	}
}

// duration is d as Prometheus reads it.
func duration(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

func (p *Server) read(file string, into any) error {
	text, err := os.ReadFile(filepath.Join(p.o.Config, file))
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func write(path string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, home.PrivateFile)
}
