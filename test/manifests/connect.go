package check

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

const storeLabel = "app.kubernetes.io/name"

// The addresses of Knative's parts, and the ports of a function's queue-proxy.
var (
	kourier     = endpoint{namespace: "kourier-system", labels: map[string]string{"app": "3scale-kourier-gateway"}}
	activator   = endpoint{namespace: "knative-serving", labels: map[string]string{"app": "activator"}}
	autoscaler  = endpoint{namespace: "knative-serving", labels: map[string]string{"app": "autoscaler"}}
	queuePort   = int32(8012)
	metricsPort = int32(9090)
)

// needs returns what a function has to reach, from the registry.
func needs(f fn.Function, webhooks bool) []string {
	all := []string{"dns"}
	uses := func(store fn.Store) bool {
		return slices.Contains(f.Stores, store) || slices.Contains(f.Optional, store)
	}
	for store, name := range map[fn.Store]string{fn.Postgres: "pgbouncer", fn.Redis: "redis", fn.NATS: "nats", fn.RabbitMQ: "rabbitmq"} {
		if uses(store) {
			all = append(all, name)
		}
	}
	if f.Public {
		all = append(all, "issuer")
	}
	if f.Public || len(f.Wakes) > 0 {
		all = append(all, "functions")
	}
	if slices.Contains(f.Reaches, fn.Allocator) {
		all = append(all, "agones")
	}
	if slices.Contains(f.Reaches, fn.Webhooks) && webhooks {
		all = append(all, "webhooks")
	}
	slices.Sort(all)
	return all
}

// destinationOf names what a rule's peer at a port is, "" for what no function needs.
func destinationOf(peer networkingv1.NetworkPolicyPeer, port int32) string {
	outside := peer.IPBlock != nil
	namespace, app := "", ""
	if peer.NamespaceSelector != nil {
		namespace = peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
	}
	if peer.PodSelector != nil {
		app = peer.PodSelector.MatchLabels[storeLabel]
	}
	switch {
	case port == 53 && namespace == "kube-system":
		return "dns"
	case port == 6432 && app == "pgbouncer":
		return app
	case port == 6379 && (app == "redis" || outside):
		return "redis"
	case port == 4222 && (app == "nats" || outside):
		return "nats"
	case port == 5672 && app == "rabbitmq", port == 5671 && outside:
		return "rabbitmq"
	case port == 443 && outside && peer.IPBlock.CIDR == "0.0.0.0/0":
		return "webhooks"
	case port == 443 && outside, port == 8080 && app == "keycloak":
		return "issuer"
	case port == 8443 && namespace == "agones-system":
		return "agones"
	case port == 8081 && namespace == kourier.namespace:
		return "functions"
	}
	return ""
}

// connect checks the network policies: what none opens is closed, every function reaches
// exactly what it needs, and only Knative reaches functions. If the stores are in the
// build, they let in exactly the functions that need them.
func connect(b *Build, pods []pod, p *problems) {
	policies := all[networkingv1.NetworkPolicy](b)
	denies := slices.ContainsFunc(policies, func(n *networkingv1.NetworkPolicy) bool {
		return len(n.Spec.PodSelector.MatchLabels)+len(n.Spec.PodSelector.MatchExpressions) == 0 &&
			len(n.Spec.PolicyTypes) == 2 && len(n.Spec.Ingress)+len(n.Spec.Egress) == 0
	})
	if !denies {
		p.add("no NetworkPolicy denies everything first")
	}
	for _, n := range policies {
		if !slices.ContainsFunc(pods, func(pod pod) bool { return selects(&n.Spec.PodSelector, pod.Labels) }) {
			p.add("NetworkPolicy %s selects nobody", n.Name)
		}
	}
	for _, self := range pods {
		if self.function == "" {
			continue
		}
		f, err := functions.Named(self.function)
		if err != nil {
			continue
		}
		webhooks := b.setting("NOTIFICATION_CHANNEL") == "webhook"
		if reached, needed := reaches(policies, self, p), needs(f, webhooks); !slices.Equal(reached, needed) {
			p.add("function %s may reach %v, and needs %v (NetworkPolicy)", f.Name, reached, needed)
		}
		at := endpoint{namespace: self.document.Namespace(), labels: self.Labels}
		for _, from := range []struct {
			endpoint
			port int32
		}{{kourier, queuePort}, {activator, queuePort}, {autoscaler, metricsPort}} {
			if !admits(policies, networkingv1.PolicyTypeIngress, at, from.endpoint, from.port) {
				p.add("function %s is not reached by %s at %d (NetworkPolicy)", f.Name, from.labels["app"], from.port)
			}
		}
		for _, port := range []int32{8080, queuePort} {
			if admits(policies, networkingv1.PolicyTypeIngress, at, endpoint{namespace: at.namespace}, port) {
				p.add("function %s is reached past Knative at %d (NetworkPolicy)", f.Name, port)
			}
		}
		if b.Stores {
			stores(policies, self, pods, p)
		}
	}
	if b.Stores {
		for _, name := range []string{"pgbouncer", "migrate"} {
			flow(policies, podNamed(pods, name), podNamed(pods, "postgres"), 5432, true, p)
		}
		flow(policies, podNamed(pods, "migrate"), podNamed(pods, "redis"), 6379, false, p)
	}
}

// reaches lists what the egress rules that select a pod let it reach.
func reaches(policies []*networkingv1.NetworkPolicy, self pod, p *problems) []string {
	var reached []string
	for _, n := range policies {
		if !slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || !selects(&n.Spec.PodSelector, self.Labels) {
			continue
		}
		for _, rule := range n.Spec.Egress {
			if len(rule.To) == 0 || len(rule.Ports) == 0 {
				p.add("NetworkPolicy %s lets function %s reach everything", n.Name, self.function)
			}
			for _, peer := range rule.To {
				for _, port := range rule.Ports {
					name := destinationOf(peer, port.Port.IntVal)
					if name == "" {
						p.add("NetworkPolicy %s lets function %s reach port %d of what nobody needs", n.Name, self.function, port.Port.IntVal)
					}
					reached = append(reached, name)
				}
			}
		}
	}
	slices.Sort(reached)
	return slices.Compact(reached)
}

// stores follows a function's connections to the pods of the stores in the build.
func stores(policies []*networkingv1.NetworkPolicy, self pod, pods []pod, p *problems) {
	f, _ := functions.Named(self.function)
	needed := needs(f, false)
	for name, port := range map[string]int32{"pgbouncer": 6432, "redis": 6379, "nats": 4222} {
		flow(policies, &self, podNamed(pods, name), port, slices.Contains(needed, name), p)
	}
	flow(policies, &self, podNamed(pods, "keycloak"), 8080, f.Public, p)
	flow(policies, &self, podNamed(pods, "postgres"), 5432, false, p)
}

// flow checks that a connection is let out and in or, if it is not wanted, that one side
// stops it.
func flow(policies []*networkingv1.NetworkPolicy, from, to *pod, port int32, want bool, p *problems) {
	if from == nil || to == nil {
		p.add("a pod of the stores is not there")
		return
	}
	name := fmt.Sprintf("%s to %s at %d (NetworkPolicy)", from.document, to.document, port)
	a := endpoint{namespace: from.document.Namespace(), labels: from.Labels}
	z := endpoint{namespace: to.document.Namespace(), labels: to.Labels}
	out, in := admits(policies, networkingv1.PolicyTypeEgress, a, z, port), admits(policies, networkingv1.PolicyTypeIngress, z, a, port)
	if want && !out || want && !in || !want && out && in {
		p.add("%s: let out %t, let in %t, wanted %t", name, out, in, want)
	}
	if !slices.ContainsFunc(to.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port })
	}) {
		p.add("%s: nobody listens there", name)
	}
}

func podNamed(pods []pod, name string) *pod {
	for i := range pods {
		if pods[i].Labels[storeLabel] == name {
			return &pods[i]
		}
	}
	return nil
}

// setting returns the value of a setting in a ConfigMap of the build.
func (b *Build) setting(name string) string {
	for _, c := range all[corev1.ConfigMap](b) {
		if value, ok := c.Data[name]; ok {
			return value
		}
	}
	return ""
}
