//go:build knative

package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/cluster"
	"github.com/miniserversystem/miniserver/test/manifests"
)

// refused plants mistakes in documents that were accepted, and checks who refuses them:
// the schema, Knative's webhook, or the API server's own validation.
func refused(t *testing.T, c *cluster.Cluster, b *check.Build) {
	for name, m := range map[string]struct{ kind, of, old, new, says string }{
		"a misspelled field of a Service":      {"Service", "relay", `"containerConcurrency"`, `"containerConcurency"`, `.spec.template.spec.containerConcurency: field not declared`},
		"a misspelled field of a probe":        {"Service", "relay", `"failureThreshold"`, `"failureTreshold"`, `failureTreshold`},
		"a misspelled field of a PingSource":   {"PingSource", "relay", `"schedule"`, `"shedule"`, `shedule`},
		"a misspelled field of a policy":       {"NetworkPolicy", "migrate", `"egress"`, `"egres"`, `egres`},
		"a misspelled field of a Deployment":   {"Deployment", "pgbouncer", `"readOnlyRootFilesystem"`, `"readOnlyRootFileSystem"`, `readOnlyRootFileSystem`},
		"a misspelled field of a Job":          {"Job", "migrate", `"backoffLimit"`, `"backOffLimit"`, `backOffLimit`},
		"a misspelled field of a Subscription": {"Subscription", "wake-notify", `"subscriber"`, `"subscribers"`, `subscribers`},
		"a concurrency that Knative forbids":   {"Service", "relay", `"containerConcurrency":`, `"containerConcurrency":-`, `validation.webhook.serving.knative.dev`},
		"a scale that Knative cannot read":     {"Service", "relay", `autoscaling.knative.dev/max-scale":"`, `autoscaling.knative.dev/max-scale":"x`, `validation.webhook.serving.knative.dev`},
		"a privilege that Knative forbids":     {"Service", "relay", `"allowPrivilegeEscalation":false`, `"privileged":true`, `privileged`},
		"a schedule that is none":              {"PingSource", "relay", `"schedule":"`, `"schedule":"61 `, `validation.webhook.eventing.knative.dev`},
		"a selector that does not fit":         {"Deployment", "pgbouncer", `"matchLabels":{`, `"matchLabels":{"a":"b",`, "`selector` does not match template `labels`"},
		"a port that is none":                  {"NetworkPolicy", "migrate", `"port":5432`, `"port":54320000`, `spec.egress[0].ports[0].port`},
		"a version that is not served":         {"Service", "relay", `"apiVersion":"serving.knative.dev/v1"`, `"apiVersion":"serving.knative.dev/v1beta1"`, `serving.knative.dev/v1beta1`},
	} {
		t.Run(name, func(t *testing.T) {
			d := find(b, m.kind, m.of)
			if d == nil {
				t.Fatalf("there is no %s %s", m.kind, m.of)
			}
			text, err := json.Marshal(d.Raw)
			if err != nil {
				t.Fatal(err)
			}
			planted := &check.Document{}
			changed := strings.Replace(string(text), m.old, m.new, 1)
			if changed == string(text) {
				t.Fatalf("%s has no %s", d, m.old)
			}
			if err := json.Unmarshal([]byte(changed), &planted.Raw); err != nil {
				t.Fatal(err)
			}
			switch err := c.Apply(planted, true); {
			case err == nil:
				t.Error("the document is accepted")
			case !strings.Contains(err.Error(), m.says):
				t.Errorf("the document is refused for another reason: %v", err)
			default:
				t.Log(err)
			}
			if !strings.HasPrefix(name, "a misspelled field") {
				return
			}
			if err := c.Creatable(planted); err == nil || !strings.Contains(err.Error(), "strict decoding error: unknown field") {
				t.Errorf("a document with an unknown field is answered %v, want it refused", err)
			}
		})
	}
}

// find returns a document; of the two kinds of Service, Knative's.
func find(b *check.Build, kind, name string) *check.Document {
	for _, d := range b.Documents {
		if d.Kind().Kind == kind && d.Name() == name && d.Kind().GroupVersion().String() != "v1" {
			return d
		}
	}
	return nil
}
