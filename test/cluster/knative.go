package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/manifests"
)

// Packages in the modules that hold Knative's documents.
const (
	serving    = "knative.dev/serving/cmd/controller"
	eventing   = "knative.dev/eventing/cmd/controller"
	networking = "knative.dev/networking/pkg/config"
	caching    = "knative.dev/caching/pkg/apis/caching"
)

// installed are Knative's own documents, in the order of installation. Its roles are
// omitted: the programs act as the test does, which may do anything.
var installed = []struct{ module, files string }{
	{serving, "config/core/100-namespace.yaml"},
	{eventing, "config/core/100-namespace.yaml"},
	{serving, "config/core/300-resources/*.yaml"},
	{networking, "config/*.yaml"},
	{caching, "config/*.yaml"},
	{eventing, "config/core/resources/*.yaml"},
	{serving, "config/core/configmaps/*.yaml"},
	{eventing, "config/core/configmaps/*.yaml"},
	{eventing, "config/core/200-pingsource-mt-adapter-serviceaccount.yaml"},
	{eventing, "config/core/deployments/pingsource-mt-adapter.yaml"},
	{serving, "config/core/webhooks/*.yaml"},
	{eventing, "config/core/webhooks/*.yaml"},
}

// configured is how up.sh configures Knative in a kind cluster. registry.example.com is
// the registry that Images names; its digests are never looked up.
var configured = map[string]map[string]any{
	"config-network":    {"ingress-class": "kourier.ingress.networking.knative.dev"},
	"config-domain":     {"localhost": ""},
	"config-deployment": {"registries-skipping-tag-resolving": "kind.local,ko.local,dev.local,registry.example.com"},
}

var koImage = regexp.MustCompile(`ko://[\w./-]+`)

// Images does what ko does, without building: it gives each command's image a name and a
// digest.
func Images(manifest []byte) []byte {
	return koImage.ReplaceAllFunc(manifest, func(image []byte) []byte {
		return fmt.Appendf(nil, "registry.example.com/%s@sha256:%s", filepath.Base(string(image)), strings.Repeat("1", 64))
	})
}

// Install applies Knative's documents, starts its controllers and webhooks from the
// modules that servers/go.mod names, and returns when the webhooks answer. environment is
// added to that of mtping, which posts the ticks.
func (c *Cluster) Install(t testing.TB, servers string, environment ...string) {
	t.Helper()
	ports := map[string]string{"webhook": freePort(t), "eventing-webhook": freePort(t)}
	for _, from := range installed {
		dir, err := ModuleOf(context.Background(), servers, from.module)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, from.files))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no %s: %v", from.module, from.files, err)
		}
		for _, file := range files {
			for _, d := range c.documents(t, file) {
				prepare(d, ports)
				Until(t, d.String(), time.Minute, func() error { return c.Apply(d, false) }, c.processes...)
			}
		}
	}
	for name, port := range ports {
		namespace := "knative-serving"
		if name != "webhook" {
			namespace = "knative-eventing"
		}
		// Webhooks are called by a Service's name. This one leads to this machine.
		d := &check.Document{Raw: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": namespace},
			"spec": map[string]any{"type": "ExternalName", "externalName": "localhost"},
		}}
		if err := c.Apply(d, false); err != nil {
			t.Fatal(err)
		}
		program := strings.TrimPrefix(namespace, "knative-") + "-webhook"
		c.knative(t, program, namespace, "WEBHOOK_NAME="+name, "WEBHOOK_PORT="+port, "SINK_BINDING_SELECTION_MODE=exclusion")
	}
	for _, to := range called {
		Until(t, "each "+to.kind, 2*time.Minute, func() error { return c.callable(to.apiVersion, to.kind, to.only) }, c.processes...)
	}
	c.knative(t, "serving-controller", "knative-serving")
	c.knative(t, "eventing-controller", "knative-eventing", eventingImages(t, servers)...)
	c.knative(t, "eventing-mtping", "knative-eventing", append([]string{
		"NAMESPACE=knative-eventing", "K_NO_SHUTDOWN_AFTER=0", "K_SINK_TIMEOUT=5", "K_OBSERVABILITY_CONFIG={}",
		`K_LOGGING_CONFIG={"loglevel.pingsource-mt-adapter":"info"}`, "K_LEADER_ELECTION_CONFIG=",
	}, environment...)...)
}

// documents returns the documents of one file.
func (c *Cluster) documents(t testing.TB, file string) []*check.Document {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := check.Read(Images(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return b.Documents
}

// prepare adapts one of Knative's documents to this machine.
func prepare(d *check.Document, ports map[string]string) {
	if values := configured[d.Name()]; values != nil && d.Namespace() == "knative-serving" {
		data, _ := d.Raw["data"].(map[string]any)
		if data == nil {
			data = map[string]any{}
			d.Raw["data"] = data
		}
		for name, value := range values {
			data[name] = value
		}
	}
	forEach(d.Raw, "clientConfig", func(config map[string]any) {
		if service, ok := config["service"].(map[string]any); ok {
			service["port"] = json.Number(ports[service["name"].(string)])
		}
	})
}

// forEach calls do with every object called name, at any depth.
func forEach(at any, name string, do func(map[string]any)) {
	switch node := at.(type) {
	case map[string]any:
		if found, ok := node[name].(map[string]any); ok {
			do(found)
		}
		for _, value := range node {
			forEach(value, name, do)
		}
	case []any:
		for _, value := range node {
			forEach(value, name, do)
		}
	}
}

// knative starts one of Knative's programs with the environment of its Deployment.
func (c *Cluster) knative(t testing.TB, program, namespace string, environment ...string) {
	t.Helper()
	c.run(t, program, append([]string{
		"KUBECONFIG=" + filepath.Join(c.dir, "kubeconfig"), "SYSTEM_NAMESPACE=" + namespace, "POD_NAME=" + program,
		"CONFIG_LOGGING_NAME=config-logging", "CONFIG_OBSERVABILITY_NAME=config-observability",
		"METRICS_DOMAIN=knative.dev/" + strings.TrimPrefix(namespace, "knative-"),
		"PROBES_PORT=" + freePort(t), "PROFILING_PORT=" + freePort(t),
	}, environment...))
}

// called are the kinds whose objects name a webhook. Of those that convert, only the ones
// that we use count: Knative leaves some without a certificate.
var called = []struct{ apiVersion, kind, only string }{
	{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", ""},
	{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", ""},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinition", "pingsources.sources.knative.dev"},
}

// callable returns an error until Knative has put its certificate wherever a webhook is
// named.
func (c *Cluster) callable(apiVersion, kind, only string) error {
	all, err := List[map[string]any](c, apiVersion, kind, "")
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("there is none")
	}
	for _, one := range all {
		name := (&check.Document{Raw: one}).Name()
		if only != "" && name != only {
			continue
		}
		forEach(one, "clientConfig", func(config map[string]any) {
			if config["service"] != nil && config["caBundle"] == nil {
				err = fmt.Errorf("%s has no certificate yet", name)
			}
		})
	}
	return err
}

// eventingImages returns the variables that the controller's Deployment takes from
// ConfigMaps of images, for sources that we do not use.
func eventingImages(t testing.TB, servers string) []string {
	t.Helper()
	dir, err := ModuleOf(context.Background(), servers, eventing)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config/core/deployments/controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var environment []string
	for _, name := range regexp.MustCompile(`name: (\w+_IMAGE)\b`).FindAllSubmatch(text, -1) {
		environment = append(environment, string(name[1])+"=registry.example.com/unused")
	}
	return environment
}

// patch merges value into an object's status.
func (c *Cluster) patch(apiVersion, kind, namespace, name string, status any) error {
	path, err := c.path(apiVersion, kind, namespace, name)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = c.do(http.MethodPatch, path+"/status", "application/merge-patch+json", body)
	return err
}
