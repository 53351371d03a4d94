package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// template is an AWS SAM template with its intrinsic functions resolved.
type template struct {
	parameters map[string]any
	conditions map[string]bool
	body       map[string]any
	errors     []string // of intrinsic functions
}

// readTemplate reads a template as CloudFormation does: parameters have a value,
// intrinsic functions are resolved, Globals are part of every function.
func readTemplate(text []byte, given map[string]any) (*template, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	var raw struct {
		Parameters map[string]struct {
			Type           string `yaml:"Type"`
			Default        any    `yaml:"Default"`
			AllowedValues  []any  `yaml:"AllowedValues"`
			AllowedPattern string `yaml:"AllowedPattern"`
		} `yaml:"Parameters"`
	}
	if err := root.Decode(&raw); err != nil {
		return nil, err
	}
	t := &template{parameters: map[string]any{"AWS::NoValue": nil}, conditions: map[string]bool{}}
	for name, p := range raw.Parameters {
		value, ok := given[name]
		if !ok {
			value = p.Default
		}
		if value == nil {
			return nil, fmt.Errorf("parameter %s has no value", name)
		}
		if list, _ := value.([]any); p.Type == "CommaDelimitedList" && list == nil {
			value = []any{value}
		}
		if text, ok := value.(string); ok && p.AllowedPattern != "" && !regexp.MustCompile("^(?:"+p.AllowedPattern+")$").MatchString(text) {
			return nil, fmt.Errorf("parameter %s cannot be %q", name, text)
		}
		if p.AllowedValues != nil && !slices.Contains(p.AllowedValues, value) {
			return nil, fmt.Errorf("parameter %s cannot be %v", name, value)
		}
		t.parameters[name] = value
	}
	top := root.Content[0]
	// Conditions are resolved first: the rest asks for them.
	for i := 0; i < len(top.Content); i += 2 {
		if top.Content[i].Value != "Conditions" {
			continue
		}
		for name, value := range t.resolve(top.Content[i+1]).(map[string]any) {
			t.conditions[name], _ = value.(bool)
		}
	}
	t.body = t.resolve(top).(map[string]any)
	t.mergeGlobals()
	if len(t.errors) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(t.errors, "; "))
	}
	return t, nil
}

func (t *template) fail(node *yaml.Node, format string, args ...any) any {
	t.errors = append(t.errors, fmt.Sprintf("line %d: ", node.Line)+fmt.Sprintf(format, args...))
	return nil
}

var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// resolve returns the value of a node; nil leaves it out.
func (t *template) resolve(node *yaml.Node) any {
	tag := node.Tag
	plain := *node
	plain.Tag = ""
	switch tag {
	case "!Ref":
		value, ok := t.parameters[node.Value]
		if !ok {
			return t.fail(node, "!Ref %s, which is no parameter", node.Value)
		}
		return value
	case "!Sub":
		return reference.ReplaceAllStringFunc(node.Value, func(r string) string {
			value, ok := t.parameters[r[2:len(r)-1]]
			if !ok {
				t.fail(node, "!Sub of %s, which is no parameter", r)
			}
			return fmt.Sprint(value)
		})
	case "!GetAtt":
		return node.Value
	}
	switch node.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(node.Content); i += 2 {
			name := node.Content[i].Value
			if _, twice := m[name]; twice {
				t.fail(node.Content[i], "%s is there twice", name)
			}
			if value := t.resolve(node.Content[i+1]); value != nil {
				m[name] = value
			}
		}
		return m
	case yaml.SequenceNode:
		if tag == "!If" {
			holds, known := t.conditions[node.Content[0].Value]
			if !known {
				return t.fail(node, "!If %s, which is no condition", node.Content[0].Value)
			}
			if holds {
				return t.resolve(node.Content[1])
			}
			return t.resolve(node.Content[2])
		}
		list := []any{}
		for _, item := range node.Content {
			list = append(list, t.resolve(item))
		}
		return t.apply(node, tag, list)
	}
	var value any
	if err := plain.Decode(&value); err != nil {
		return t.fail(node, "%v", err)
	}
	return value
}

func (t *template) apply(node *yaml.Node, function string, arguments []any) any {
	switch function {
	case "!!seq":
		return arguments
	case "!Not":
		return !arguments[0].(bool)
	case "!Equals":
		return arguments[0] == arguments[1]
	case "!Join":
		var parts []string
		for _, part := range arguments[1].([]any) {
			parts = append(parts, fmt.Sprint(part))
		}
		return strings.Join(parts, arguments[0].(string))
	}
	return t.fail(node, "the test does not know %s", function)
}

// mergeGlobals does what AWS SAM does with Globals.
func (t *template) mergeGlobals() {
	globals := object(object(t.body, "Globals"), "Function")
	for _, resource := range object(t.body, "Resources") {
		properties := object(resource.(map[string]any), "Properties")
		environment := maps.Clone(object(object(globals, "Environment"), "Variables"))
		maps.Copy(environment, object(object(properties, "Environment"), "Variables"))
		for name, value := range globals {
			if _, own := properties[name]; !own {
				properties[name] = value
			}
		}
		properties["Environment"] = map[string]any{"Variables": environment}
	}
}

// object returns a part of m that is an object, an empty one when there is none.
func object(m map[string]any, name string) map[string]any {
	o, _ := m[name].(map[string]any)
	if o == nil {
		o = map[string]any{}
	}
	return o
}
