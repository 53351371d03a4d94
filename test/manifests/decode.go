package check

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	messagingv1 "knative.dev/eventing/pkg/apis/messaging/v1"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	strict "sigs.k8s.io/json"
)

// types are the kinds that a build may have. Add a new one together with its checks.
var types = map[schema.GroupVersionKind]func() any{
	corev1.SchemeGroupVersion.WithKind("Namespace"):           func() any { return &corev1.Namespace{} },
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"):      func() any { return &corev1.ServiceAccount{} },
	corev1.SchemeGroupVersion.WithKind("ConfigMap"):           func() any { return &corev1.ConfigMap{} },
	corev1.SchemeGroupVersion.WithKind("Secret"):              func() any { return &corev1.Secret{} },
	corev1.SchemeGroupVersion.WithKind("Service"):             func() any { return &corev1.Service{} },
	appsv1.SchemeGroupVersion.WithKind("Deployment"):          func() any { return &appsv1.Deployment{} },
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"):         func() any { return &appsv1.StatefulSet{} },
	batchv1.SchemeGroupVersion.WithKind("Job"):                func() any { return &batchv1.Job{} },
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"): func() any { return &networkingv1.NetworkPolicy{} },
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): func() any {
		return &policyv1.PodDisruptionBudget{}
	},
	servingv1.SchemeGroupVersion.WithKind("Service"):        func() any { return &servingv1.Service{} },
	sourcesv1.SchemeGroupVersion.WithKind("PingSource"):     func() any { return &sourcesv1.PingSource{} },
	messagingv1.SchemeGroupVersion.WithKind("Subscription"): func() any { return &messagingv1.Subscription{} },
	jetStreamChannelKind: func() any { return &JetStreamChannel{} },
}

// decode decodes every document's object, as strictly as the API server with
// fieldValidation=Strict: names in their exact case, none unknown, none twice.
func decode(b *Build, p *problems) {
	seen := map[string]bool{}
	for _, d := range b.Documents {
		id := d.Kind().GroupKind().String() + " " + d.Namespace() + "/" + d.Name()
		if seen[id] {
			p.add("%s is there twice", d)
		}
		seen[id] = true
		made, ok := types[d.Kind()]
		if !ok {
			p.add("%s: nothing here knows %s", d, d.Kind())
			continue
		}
		text, err := json.Marshal(d.Raw)
		if err != nil {
			p.add("%s: %w", d, err)
			continue
		}
		object := made()
		unknown, err := strict.UnmarshalStrict(text, object)
		if err != nil {
			p.add("%s: %w", d, err)
			continue
		}
		for _, err := range unknown {
			p.add("%s: %w", d, err)
		}
		d.Object = object
	}
}
