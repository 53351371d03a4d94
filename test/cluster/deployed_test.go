//go:build knative

package cluster_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/cluster"
	"github.com/miniserversystem/miniserver/test/manifests"
)

const (
	serving = "serving.knative.dev/v1"
	patient = 2 * time.Minute
)

// deployment returns the Deployment that Knative made of a Service.
func deployment(c *cluster.Cluster, service string) (*appsv1.Deployment, error) {
	var s servingv1.Service
	if err := c.Get(serving, "Service", namespace, service, &s); err != nil {
		return nil, err
	}
	d := &appsv1.Deployment{}
	return d, c.Get("apps/v1", "Deployment", namespace, s.Status.LatestReadyRevisionName+"-deployment", d)
}

// deployed waits until each function's Service is Ready, and compares the pods that
// Knative would create with the manifest.
func deployed(t *testing.T, c *cluster.Cluster, b *check.Build) {
	services := 0
	for _, d := range b.Documents {
		if d.Kind().Group != "serving.knative.dev" {
			continue
		}
		services++
		t.Run(d.Name(), func(t *testing.T) {
			var want, is servingv1.Service
			decode(t, d.Raw, &want)
			cluster.Until(t, "Service "+d.Name(), patient, func() error {
				is = servingv1.Service{}
				if err := c.Get(serving, "Service", namespace, d.Name(), &is); err != nil {
					return err
				}
				return ready(is.Status.Status)
			})
			revision := is.Status.LatestReadyRevisionName
			var configuration servingv1.Configuration
			if err := c.Get(serving, "Configuration", namespace, d.Name(), &configuration); err != nil || configuration.Status.LatestReadyRevisionName != revision {
				t.Errorf("Configuration: %q, %v", configuration.Status.LatestReadyRevisionName, err)
			}
			var route servingv1.Route
			if err := c.Get(serving, "Route", namespace, d.Name(), &route); err != nil || len(route.Status.Traffic) != 1 || route.Status.Traffic[0].RevisionName != revision {
				t.Errorf("Route: %v, %v", route.Status.Traffic, err)
			}
			var autoscaler autoscalingv1alpha1.PodAutoscaler
			if err := c.Get("autoscaling.internal.knative.dev/v1alpha1", "PodAutoscaler", namespace, revision, &autoscaler); err != nil {
				t.Error(err)
			}
			for name, value := range want.Spec.Template.Annotations {
				if strings.HasPrefix(name, "autoscaling.") && autoscaler.Annotations[name] != value {
					t.Errorf("PodAutoscaler: %s is %q, want %q", name, autoscaler.Annotations[name], value)
				}
			}
			made, err := deployment(c, d.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, difference := range differences(want.Spec.Template.Spec, made.Spec.Template.Spec) {
				t.Error(difference)
			}
		})
	}
	if services != len(functions.All) {
		t.Errorf("%d Services for %d functions", services, len(functions.All))
	}
	t.Logf("%d Services", services)
}

// differences compares a Service's template with the pod that Knative makes of it.
func differences(want servingv1.RevisionSpec, pod corev1.PodSpec) []string {
	var all []string
	differ := func(what string, is, want any) {
		if !equality.Semantic.DeepEqual(is, want) {
			all = append(all, fmt.Sprintf("%s: %s, want %s", what, text(is), text(want)))
		}
	}
	differ("service account", pod.ServiceAccountName, want.ServiceAccountName)
	differ("service account's token", pod.AutomountServiceAccountToken, want.AutomountServiceAccountToken)
	differ("service links", pod.EnableServiceLinks, want.EnableServiceLinks)
	function, proxy := named(pod, "function"), named(pod, "queue-proxy")
	if function == nil || proxy == nil || len(pod.Containers) != 2 {
		return append(all, "its containers are not the function and Knative's proxy")
	}
	asked := want.Containers[0]
	differ("image", function.Image, asked.Image)
	differ("environment", function.Env[:min(len(asked.Env), len(function.Env))], asked.Env)
	differ("environment from", function.EnvFrom, asked.EnvFrom)
	differ("resources", function.Resources, asked.Resources)
	differ("security context", function.SecurityContext, asked.SecurityContext)
	differ("port", function.Ports[0].ContainerPort, asked.Ports[0].ContainerPort)
	differ("readiness at", function.ReadinessProbe == nil, true) // queue-proxy probes it instead
	probe := &corev1.Probe{}
	if err := json.Unmarshal([]byte(variable(proxy, "SERVING_READINESS_PROBE")), probe); err != nil || probe.HTTPGet == nil {
		return append(all, "the proxy has no readiness probe")
	}
	differ("readiness path", probe.HTTPGet.Path, asked.ReadinessProbe.HTTPGet.Path)
	differ("readiness period", probe.PeriodSeconds, asked.ReadinessProbe.PeriodSeconds)
	differ("liveness path", function.LivenessProbe.HTTPGet.Path, asked.LivenessProbe.HTTPGet.Path)
	differ("liveness period", function.LivenessProbe.PeriodSeconds, asked.LivenessProbe.PeriodSeconds)
	differ("concurrency", variable(proxy, "CONTAINER_CONCURRENCY"), fmt.Sprint(*want.ContainerConcurrency))
	differ("timeout", variable(proxy, "REVISION_TIMEOUT_SECONDS"), fmt.Sprint(*want.TimeoutSeconds))
	return all
}

// sourced waits until each PingSource knows its sink and is Ready.
func sourced(t *testing.T, c *cluster.Cluster, b *check.Build) {
	sources := 0
	for _, d := range b.Documents {
		if d.Kind().Kind != "PingSource" {
			continue
		}
		sources++
		var is sourcesv1.PingSource
		cluster.Until(t, d.String(), patient, func() error {
			is = sourcesv1.PingSource{}
			if err := c.Get("sources.knative.dev/v1", "PingSource", namespace, d.Name(), &is); err != nil {
				return err
			}
			return ready(is.Status.Status)
		})
		if want := "http://" + d.Name() + "." + namespace + ".svc.cluster.local/tick"; is.Status.SinkURI.String() != want {
			t.Errorf("%s: its sink is %s, want %s", d, is.Status.SinkURI, want)
		}
	}
	t.Logf("%d PingSources", sources)
}

func ready(s duckv1.Status) error {
	var not []string
	for _, condition := range s.Conditions {
		if !condition.IsTrue() {
			not = append(not, fmt.Sprintf("%s: %s %s %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
		if condition.Type == "Ready" && condition.IsTrue() {
			return nil
		}
	}
	return fmt.Errorf("not ready: %s", strings.Join(not, "; "))
}

func named(pod corev1.PodSpec, container string) *corev1.Container {
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return nil
	}
	return &pod.Containers[i]
}

func variable(c *corev1.Container, name string) string {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return ""
	}
	return c.Env[i].Value
}

func decode(t testing.TB, raw, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text(raw)), into); err != nil {
		t.Fatal(err)
	}
}

func text(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}
