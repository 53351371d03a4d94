package check

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	netcfg "knative.dev/networking/pkg/config"
	"knative.dev/pkg/logging"
	apiconfig "knative.dev/serving/pkg/apis/config"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"knative.dev/serving/pkg/autoscaler/config/autoscalerconfig"
	"knative.dev/serving/pkg/deployment"
	"knative.dev/serving/pkg/observability"
	configuration "knative.dev/serving/pkg/reconciler/configuration/resources"
	"knative.dev/serving/pkg/reconciler/revision/config"
	revision "knative.dev/serving/pkg/reconciler/revision/resources"
	service "knative.dev/serving/pkg/reconciler/service/resources"
)

// pod is the template that a workload makes pods of.
type pod struct {
	document *Document
	function string // the pod's function; "" for other workloads
	corev1.PodTemplateSpec
}

// podsOf returns the pods of every workload; Knative's own reconcilers make those of its
// Services, with queue-proxy beside the function.
func podsOf(b *Build, p *problems) []pod {
	var pods []pod
	for _, d := range b.Documents {
		switch object := d.Object.(type) {
		case *appsv1.Deployment:
			pods = append(pods, pod{d, "", object.Spec.Template})
		case *appsv1.StatefulSet:
			pods = append(pods, pod{d, "", object.Spec.Template})
		case *batchv1.Job:
			pods = append(pods, pod{d, "", object.Spec.Template})
		case *servingv1.Service:
			made, err := revise(object)
			if err != nil {
				p.add("%s: %w", d, err)
				continue
			}
			pods = append(pods, pod{d, d.Name(), made.Spec.Template})
		}
	}
	return pods
}

// revise makes the Deployment of a Service's first revision, with Knative's default
// configuration.
func revise(s *servingv1.Service) (*appsv1.Deployment, error) {
	rev := configuration.MakeRevision(context.Background(), service.MakeConfiguration(s), time.Unix(0, 0))
	for _, c := range rev.Spec.Containers {
		rev.Status.ContainerStatuses = append(rev.Status.ContainerStatuses, servingv1.ContainerStatus{Name: c.Name, ImageDigest: c.Image})
	}
	defaults := apiconfig.FromContextOrDefaults(context.Background())
	defaults.Autoscaler = &autoscalerconfig.Config{InitialScale: 1}
	return revision.MakeDeployment(rev, &config.Config{
		Config: defaults, Deployment: &deployment.Config{QueueSidecarImage: "queue-proxy"}, Logging: &logging.Config{},
		Network: &netcfg.Config{}, Observability: &observability.Config{},
	})
}

// secure checks the namespace's Pod Security level, which must be restricted, as the API
// server does for each pod.
func secure(b *Build, pods []pod, p *problems) {
	for _, n := range all[corev1.Namespace](b) {
		if n.Labels[api.EnforceLevelLabel] != string(api.LevelRestricted) {
			p.add("Namespace %s does not enforce Pod Security restricted", n.Name)
		}
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		p.add("pod security: %w", err)
		return
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, pod := range pods {
		results := evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, &pod.Spec)
		if result := policy.AggregateCheckResults(results); !result.Allowed {
			p.add("%s is not restricted: %s (%s)", pod.document, result.ForbiddenReason(), result.ForbiddenDetail())
		}
		if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
			p.add("%s: its pods have a service account token", pod.document)
		}
		for _, c := range pod.Spec.Containers {
			limits := c.Resources.Limits
			if pod.function != "" && c.Name != "function" {
				continue // Knative's
			}
			if c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || limits.Memory().IsZero() {
				p.add("%s: container %s has no requests or no memory limit", pod.document, c.Name)
			}
			if c.ReadinessProbe == nil && pod.document.Kind().Kind != "Job" && pod.function == "" {
				p.add("%s: container %s has no readiness probe", pod.document, c.Name)
			}
		}
	}
}
