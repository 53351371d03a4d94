package check

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// endpoint is one side of a connection: a pod by its labels, or, with cidr, an address
// outside.
type endpoint struct {
	namespace string
	labels    map[string]string
	cidr      string
}

// admits reports whether the namespace's policies let a pod of it talk to another
// endpoint, in one direction. Pods that no policy selects may do anything.
func admits(policies []*networkingv1.NetworkPolicy, direction networkingv1.PolicyType, self, other endpoint, port int32) bool {
	isolated := false
	for _, policy := range policies {
		if !slices.Contains(policy.Spec.PolicyTypes, direction) || policy.Namespace != self.namespace || !selects(&policy.Spec.PodSelector, self.labels) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeEgress {
			for _, rule := range policy.Spec.Egress {
				if onPort(rule.Ports, port) && isPeer(rule.To, policy.Namespace, other) {
					return true
				}
			}
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if onPort(rule.Ports, port) && isPeer(rule.From, policy.Namespace, other) {
				return true
			}
		}
	}
	return !isolated
}

func onPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return p.Port == nil || p.Port.IntVal == port
	})
}

func isPeer(peers []networkingv1.NetworkPolicyPeer, namespace string, e endpoint) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		switch {
		case peer.IPBlock != nil:
			return peer.IPBlock.CIDR == e.cidr
		case e.cidr != "":
			return false
		case peer.NamespaceSelector == nil:
			return e.namespace == namespace && selects(peer.PodSelector, e.labels)
		}
		return selects(peer.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": e.namespace}) && selects(peer.PodSelector, e.labels)
	})
}

// selects reports whether a label selector matches; a missing one matches everything.
func selects(selector *metav1.LabelSelector, on map[string]string) bool {
	if selector == nil {
		return true
	}
	made, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && made.Matches(labels.Set(on))
}
