package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	provider "github.com/openfaas/faas-provider/types"
	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Stack has the fields of faas-cli's stack.yaml that we use, as this module cannot depend
// on faas-cli's. Other fields are unknown.
type Stack struct {
	Version  string `json:"version"`
	Provider struct {
		Name    string `json:"name"`
		Gateway string `json:"gateway"`
	} `json:"provider"`
	Functions map[string]StackFunction `json:"functions"`
}

// StackFunction is one function of a Stack; the resources have the provider's own type.
type StackFunction struct {
	Image                  string                     `json:"image"`
	SkipBuild              bool                       `json:"skip_build"`
	ReadOnlyRootFilesystem bool                       `json:"readonly_root_filesystem"`
	Labels                 map[string]string          `json:"labels"`
	Annotations            map[string]string          `json:"annotations"`
	Environment            map[string]string          `json:"environment"`
	Secrets                []string                   `json:"secrets"`
	Requests               provider.FunctionResources `json:"requests"`
	Limits                 provider.FunctionResources `json:"limits"`
}

// mounted is the folder where OpenFaaS puts secrets.
const mounted = "/var/openfaas/secrets/"

var variable = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

// CheckStack returns everything that is wrong with a stack.yaml, and starts each function
// with its environment and with made-up secrets in folder.
func CheckStack(text []byte, folder string) []error {
	var p problems
	// faas-cli reads the version as text, and inserts the defaults of unset variables.
	text = variable.ReplaceAll(text, []byte("$1"))
	text = regexp.MustCompile(`(?m)^version: (.*)$`).ReplaceAll(text, []byte(`version: "$1"`))
	var stack Stack
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return []error{err}
	}
	unknown, err := strict.UnmarshalStrict(asJSON, &stack)
	if err != nil {
		return []error{err}
	}
	for _, err := range unknown {
		p.add("stack.yaml: %w", err)
	}
	if stack.Version != "1.0" || stack.Provider.Name != "openfaas" {
		p.add("stack.yaml is not of version 1.0 for openfaas")
	}
	for name := range stack.Functions {
		if _, err := functions.Named(name); err != nil {
			p.add("stack.yaml: no function %s is in the registry", name)
		}
	}
	for _, f := range functions.All {
		s, ok := stack.Functions[f.Name]
		if !ok {
			p.add("function %s is not in stack.yaml", f.Name)
			continue
		}
		for _, err := range s.check(f, folder) {
			p.add("stack.yaml: %s: %w", f.Name, err)
		}
	}
	return p
}

func (s StackFunction) check(f fn.Function, folder string) (p problems) {
	if !pinned.MatchString(s.Image) || strings.HasSuffix(s.Image, ":latest") || !s.SkipBuild || !s.ReadOnlyRootFilesystem {
		p.add("image, skip_build and readonly_root_filesystem are not those of a finished image")
	}
	for _, quantity := range []string{s.Requests.CPU, s.Requests.Memory, s.Limits.CPU, s.Limits.Memory} {
		if _, err := resource.ParseQuantity(quantity); err != nil {
			p.add("the quantity %q: %w", quantity, err)
		}
	}
	for name, value := range s.Labels {
		if wrong := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
			p.add("label %s: %v", name, wrong)
		}
	}
	least, err := strconv.Atoi(s.Labels["com.openfaas.scale.min"])
	most, err2 := strconv.Atoi(s.Labels["com.openfaas.scale.max"])
	if err != nil || err2 != nil || least < max(1, f.MinScale) || most < least || f.MaxScale == 1 && most != 1 || s.Labels["com.openfaas.scale.zero"] != "false" {
		p.add("it scales from %d to %d, zero %s", least, most, s.Labels["com.openfaas.scale.zero"])
	}
	if s.Annotations["com.openfaas.health.http.path"] != fn.OpenFaaSLivenessPath || s.Annotations["com.openfaas.ready.http.path"] != fn.OpenFaaSReadinessPath {
		p.add("its probes ask other paths")
	}
	p = append(p, s.ticks(f)...)
	return append(p, s.starts(f, folder)...)
}

// ticks checks the cron, which counts in minutes, and that a tick lasts until the next.
func (s StackFunction) ticks(f fn.Function) (p problems) {
	topic, schedule := s.Annotations["topic"], s.Annotations["schedule"]
	if f.Schedule == 0 {
		if topic != "" || schedule != "" {
			p.add("it has no schedule and is ticked")
		}
		return p
	}
	parsed, err := cron.ParseStandard(schedule) // cron-connector's parser
	if err != nil || topic != "cron-function" {
		p.add("topic %q and schedule %q are no ticks: %v", topic, schedule, err)
		return p
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	every := parsed.Next(at).Sub(at)
	linger, _ := time.ParseDuration(s.Environment["TICK_LINGER"])
	if every > f.Schedule && linger < every-10*time.Second || every < f.Schedule || linger >= every {
		p.add("it is ticked every %s and lingers %s; the registry says %s", every, linger, f.Schedule)
	}
	return p
}

// starts starts the function with files for its secrets.
func (s StackFunction) starts(f fn.Function, folder string) (p problems) {
	environment := map[string]string{}
	var needed []string
	for name, value := range s.Environment {
		setting, isFile := strings.CutSuffix(name, "_FILE")
		switch {
		case isFile && !isSetting(name):
			secret, inside := strings.CutPrefix(value, mounted)
			if !inside {
				p.add("%s is not under %s", name, mounted)
			}
			needed = append(needed, secret)
			value = filepath.Join(folder, f.Name+"-"+secret)
			if err := os.WriteFile(value, []byte(madeUp(setting)), 0o600); err != nil {
				p.add("%w", err)
			}
		default:
			setting = name
		}
		if !isSetting(setting) && !goVariables[setting] {
			p.add("there is no setting %s", setting)
		}
		environment[name] = value
	}
	slices.Sort(needed)
	if listed := slices.Sorted(slices.Values(s.Secrets)); !slices.Equal(listed, needed) {
		p.add("its secrets are %v, and it reads %v", listed, needed)
	}
	loaded, err := settings.LoadFrom(environment)
	if err != nil {
		p.add("%w", err)
		return p
	}
	if loaded.Function != f.Name || loaded.Schedule != "off" {
		p.add("FUNCTION is %s, SCHEDULE is %s", loaded.Function, loaded.Schedule)
	}
	if _, err := starts(loaded); err != nil {
		p.add("%w", err)
	}
	return p
}
