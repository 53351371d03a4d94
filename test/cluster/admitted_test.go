//go:build knative

package cluster_test

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/cluster"
	"github.com/miniserversystem/miniserver/test/manifests"
)

// admitted has the API server admit a pod of each workload, by its own Pod Security and
// the namespace's level, without creating it.
func admitted(t *testing.T, c *cluster.Cluster, b *check.Build) {
	pods := map[string]corev1.PodTemplateSpec{}
	for _, f := range functions.All {
		d, err := deployment(c, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		pods[f.Name] = d.Spec.Template
	}
	for _, d := range b.Documents {
		switch d.Kind().Kind {
		case "Deployment":
			var of appsv1.Deployment
			decode(t, d.Raw, &of)
			pods["deployment-"+of.Name] = of.Spec.Template
		case "StatefulSet":
			var of appsv1.StatefulSet
			decode(t, d.Raw, &of)
			for _, claim := range of.Spec.VolumeClaimTemplates { // as the StatefulSet's controller does
				source := corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + of.Name + "-0"}
				of.Spec.Template.Spec.Volumes = append(of.Spec.Template.Spec.Volumes,
					corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &source}})
			}
			pods["statefulset-"+of.Name] = of.Spec.Template
		case "Job":
			var of batchv1.Job
			decode(t, d.Raw, &of)
			pods["job-"+of.Name] = of.Spec.Template
		}
	}
	for name, template := range pods {
		if err := c.Apply(podOf(t, name, template), true); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d workloads", len(pods))

	// The namespace's purpose: a pod with one privilege more is refused.
	relay, yes := pods["relay"], true
	planted := *relay.DeepCopy()
	named(planted.Spec, "function").SecurityContext.AllowPrivilegeEscalation = &yes
	var refused *cluster.Refused
	if err := c.Apply(podOf(t, "planted", planted), true); !errors.As(err, &refused) || refused.Code != 403 {
		t.Errorf("a pod that may escalate its privileges is answered %v, want 403", err)
	} else {
		t.Log(err)
	}
}

func podOf(t *testing.T, name string, template corev1.PodTemplateSpec) *check.Document {
	t.Helper()
	d := &check.Document{}
	decode(t, map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": template.Spec,
		"metadata": map[string]any{"name": name, "namespace": namespace, "labels": template.Labels},
	}, &d.Raw)
	return d
}
