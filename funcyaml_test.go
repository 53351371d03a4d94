package function_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// funcYAML is func.yaml as far as we use it (specVersion 0.36.0). The func CLI ignores
// fields that it does not know, so a typo would go unnoticed.
type funcYAML struct {
	SpecVersion string    `yaml:"specVersion"`
	Name        string    `yaml:"name"`
	Created     time.Time `yaml:"created"`
	Runtime     string    `yaml:"runtime"`
	Invoke      string    `yaml:"invoke"`
	Build       struct {
		Builder string `yaml:"builder"`
	} `yaml:"build"`
	Deploy struct {
		HealthEndpoints struct {
			Liveness  string `yaml:"liveness"`
			Readiness string `yaml:"readiness"`
		} `yaml:"healthEndpoints"`
	} `yaml:"deploy"`
}

func readFuncYAML(text []byte) (f funcYAML, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil {
		return f, err
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return f, errors.New("more than one document")
	}
	return f, nil
}

// func.yaml has the fields that the CLI needs, and none that it would ignore.
func TestFuncYAML(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("func.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := readFuncYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	// The probes are answered by the CLI's middleware, at these paths only.
	want := funcYAML{SpecVersion: "0.36.0", Name: f.Name, Created: f.Created, Runtime: "go", Invoke: "http"}
	want.Build.Builder = "host"
	want.Deploy.HealthEndpoints.Liveness, want.Deploy.HealthEndpoints.Readiness = "/health/liveness", "/health/readiness"
	if f != want {
		t.Errorf("it says %+v, want %+v", f, want)
	}
	if !regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(f.Name) {
		t.Errorf("%q cannot be the name of a Knative Service", f.Name)
	}
	if f.Created.IsZero() {
		t.Error("without created the CLI says that there is no function here")
	}
	for name, wrong := range map[string]string{
		"unknown field": string(text) + "scale: 1\n",
		"unknown probe": strings.Replace(string(text), "liveness:", "livenes:", 1),
		"field twice":   string(text) + "runtime: go\n",
		"second part":   string(text) + "---\nruntime: go\n",
	} {
		if _, err := readFuncYAML([]byte(wrong)); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
