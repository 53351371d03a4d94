package check

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	messagingv1 "knative.dev/eventing/pkg/apis/messaging/v1"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	duckv1 "knative.dev/pkg/apis/duck/v1"
)

// refer checks that the object of every reference exists.
func refer(b *Build, pods []pod, p *problems) {
	for _, pod := range pods {
		if b.Find("ServiceAccount", pod.Spec.ServiceAccountName) == nil {
			p.add("%s: there is no ServiceAccount %q", pod.document, pod.Spec.ServiceAccountName)
		}
		if pod.Spec.ServiceAccountName != pod.document.Name() {
			p.add("%s: its ServiceAccount is %s, not one of its own", pod.document, pod.Spec.ServiceAccountName)
		}
		for _, v := range pod.Spec.Volumes {
			if v.Secret != nil {
				b.secret(p, pod.document, v.Secret.SecretName, "", v.Secret.Optional)
			}
			if v.ConfigMap != nil {
				b.configMap(p, pod.document, v.ConfigMap.Name)
			}
		}
		for _, c := range pod.Spec.Containers {
			for _, from := range c.EnvFrom {
				if from.ConfigMapRef != nil {
					b.configMap(p, pod.document, from.ConfigMapRef.Name)
				}
				if from.SecretRef != nil {
					p.add("%s: takes all of Secret %s, needed or not", pod.document, from.SecretRef.Name)
				}
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					ref := e.ValueFrom.SecretKeyRef
					b.secret(p, pod.document, ref.Name, ref.Key, ref.Optional)
				}
			}
		}
	}
	for _, a := range all[corev1.ServiceAccount](b) {
		if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
			p.add("ServiceAccount %s gives its pods a token", a.Name)
		}
		if !slices.ContainsFunc(pods, func(pod pod) bool { return pod.Spec.ServiceAccountName == a.Name }) {
			p.add("ServiceAccount %s is nobody's", a.Name)
		}
	}
	for _, budget := range all[policyv1.PodDisruptionBudget](b) {
		if !slices.ContainsFunc(pods, func(pod pod) bool { return selects(budget.Spec.Selector, pod.Labels) }) {
			p.add("PodDisruptionBudget %s selects nobody", budget.Name)
		}
	}
	for _, s := range all[sourcesv1.PingSource](b) {
		b.destination(p, "PingSource "+s.Name, &s.Spec.Sink)
	}
	for _, s := range all[messagingv1.Subscription](b) {
		b.destination(p, "Subscription "+s.Name, s.Spec.Subscriber)
		if b.Find(s.Spec.Channel.Kind, s.Spec.Channel.Name) == nil {
			p.add("Subscription %s: there is no %s %s", s.Name, s.Spec.Channel.Kind, s.Spec.Channel.Name)
		}
	}
}

func (b *Build) configMap(p *problems, by *Document, name string) {
	if b.Find("ConfigMap", name) == nil {
		p.add("%s: there is no ConfigMap %q", by, name)
	}
}

// secret checks that a Secret has a key, or any if key is "". An optional one may be
// missing, but not its key alone.
func (b *Build) secret(p *problems, by *Document, name, key string, optional *bool) {
	keys, expected := b.Expected[name]
	if d := b.Find("Secret", name); d != nil {
		var secret *corev1.Secret
		if secret, expected = d.Object.(*corev1.Secret); expected {
			keys = slices.AppendSeq(keys, maps.Keys(secret.Data))
		}
	}
	switch {
	case !expected && (optional == nil || !*optional):
		p.add("%s: there is no Secret %q, and none is expected", by, name)
	case expected && key != "" && !slices.Contains(keys, key):
		p.add("%s: Secret %s has no key %q", by, name, key)
	}
}

// destination checks that a sink or subscriber is a Knative Service of the build.
func (b *Build) destination(p *problems, by string, to *duckv1.Destination) {
	if to == nil || to.Ref == nil || to.Ref.APIVersion != "serving.knative.dev/v1" || to.Ref.Kind != "Service" {
		p.add("%s does not go to a Knative Service", by)
		return
	}
	if !slices.ContainsFunc(b.Documents, func(d *Document) bool {
		return d.Kind().Group == "serving.knative.dev" && d.Name() == to.Ref.Name
	}) {
		p.add("%s: there is no Knative Service %q", by, to.Ref.Name)
	}
}
