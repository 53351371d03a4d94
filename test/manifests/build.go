// Package check reads the manifests as a cluster would, without one: kustomize builds
// them, every document is decoded strictly into its own type and validated by the code of
// Knative's webhooks, and every reference is followed.
//
// It is a module of its own so that Kubernetes and Knative stay out of the functions'
// dependencies.
package check

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Build is the output of a kustomization.
type Build struct {
	Documents []*Document
	// Expected are the Secrets that are not in the build, with their keys: whoever runs
	// the cluster creates them.
	Expected map[string][]string
	// Stores says that the stores are in the build, so that the way to each can be
	// followed to its pods.
	Stores bool
}

// Document is one object of a build.
type Document struct {
	Raw    map[string]any
	Object any // of the document's own type, after decoding
}

func (d *Document) text(path ...string) string {
	at := any(d.Raw)
	for _, name := range path {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	text, _ := at.(string)
	return text
}

// Kind is the group, version and kind.
func (d *Document) Kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.text("apiVersion"), d.text("kind"))
}

// Name returns the object's name, Namespace its namespace.
func (d *Document) Name() string      { return d.text("metadata", "name") }
func (d *Document) Namespace() string { return d.text("metadata", "namespace") }

// String names the document in errors.
func (d *Document) String() string { return d.Kind().Kind + " " + d.Name() }

// Make builds the kustomization in a folder with kustomize's default restrictions: no
// plugins, no files from outside.
func Make(folder string) ([]byte, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", folder, err)
	}
	return made.AsYaml()
}

// Read reads documents that are separated as in YAML.
func Read(text []byte) (*Build, error) {
	var b Build
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		d := &Document{}
		if err := yaml.UnmarshalStrict(part, &d.Raw); err != nil {
			return nil, err
		}
		if len(d.Raw) > 0 {
			b.Documents = append(b.Documents, d)
		}
	}
	return &b, nil
}

// Find returns the raw document of a kind (any group's) and name, nil when there is none.
func (b *Build) Find(kind, name string) *Document {
	for _, d := range b.Documents {
		if d.Kind().Kind == kind && d.Name() == name {
			return d
		}
	}
	return nil
}

// all returns the objects of a type.
func all[T any](b *Build) []*T {
	var objects []*T
	for _, d := range b.Documents {
		if object, ok := d.Object.(*T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// problems collects the faults of a build.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// Check returns everything that is wrong with a build. A document that cannot be decoded
// is not checked further.
func Check(b *Build) []error {
	var p problems
	resolveImages(b, &p)
	decode(b, &p)
	admit(b, &p)
	pods := podsOf(b, &p)
	secure(b, pods, &p)
	refer(b, pods, &p)
	register(b, &p)
	start(b, pods, &p)
	connect(b, pods, &p)
	return p
}
