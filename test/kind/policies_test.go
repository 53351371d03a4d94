//go:build cluster

package kind_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/standin"
	"github.com/miniserversystem/miniserver/test/system"
)

// selector is a LabelSelector; nil selects nothing.
type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

func (s *selector) selects(labels map[string]string) bool {
	if s == nil {
		return false
	}
	for key, value := range s.MatchLabels {
		if labels[key] != value {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, there := labels[e.Key]
		ok := map[string]bool{
			"In": there && slices.Contains(e.Values, value), "NotIn": !there || !slices.Contains(e.Values, value),
			"Exists": there, "DoesNotExist": !there,
		}[e.Operator]
		if !ok {
			return false
		}
	}
	return true
}

type metadata struct {
	Name, Namespace string
	Labels          map[string]string
}

// peer is one side of a connection.
type peer struct {
	PodSelector, NamespaceSelector *selector
	IPBlock                        *struct {
		CIDR   string
		Except []string
	}
}

// rule allows connections with any of some peers, to any of some ports; none is any.
type rule struct {
	From, To []peer
	Ports    []struct {
		Protocol string
		Port     any // a number, or the name of a container's port
	}
}

type policy struct {
	Metadata metadata
	Spec     struct {
		PodSelector     selector
		PolicyTypes     []string
		Ingress, Egress []rule
	}
}

type pod struct {
	Metadata metadata
	Spec     struct {
		HostNetwork bool
		Containers  []struct {
			Ports []struct {
				Name          string
				ContainerPort int
			}
		}
	}
	Status struct{ PodIP, Phase string }
}

// state is what NetworkPolicies are about.
type state struct {
	policies   []policy
	pods       []pod
	namespaces map[string]map[string]string // labels
}

func (c *cluster) state() (s state, err error) {
	s.namespaces = map[string]map[string]string{}
	printed, err := c.kubectl("get", "networkpolicies,pods,namespaces", "--all-namespaces", "--output", "json")
	if err != nil {
		return s, fmt.Errorf("kubectl get: %w: %s", err, printed)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(printed), &list); err != nil {
		return s, err
	}
	for _, item := range list.Items {
		var kind struct {
			Kind     string
			Metadata metadata
		}
		err := json.Unmarshal(item, &kind)
		switch kind.Kind {
		case "NetworkPolicy":
			s.policies = append(s.policies, policy{})
			err = errors.Join(err, json.Unmarshal(item, &s.policies[len(s.policies)-1]))
		case "Pod":
			s.pods = append(s.pods, pod{})
			err = errors.Join(err, json.Unmarshal(item, &s.pods[len(s.pods)-1]))
		case "Namespace":
			s.namespaces[kind.Metadata.Name] = kind.Metadata.Labels
		}
		if err != nil {
			return s, err
		}
	}
	s.pods = slices.DeleteFunc(s.pods, func(p pod) bool {
		return p.Spec.HostNetwork || p.Status.PodIP == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
	})
	return s, nil
}

// addresses returns those of a peer of a policy in a namespace.
func (s state) addresses(p peer, namespace string) (all []string) {
	if p.IPBlock != nil {
		return []string{p.IPBlock.CIDR} // none of ours has exceptions
	}
	for _, pod := range s.pods {
		in := pod.Metadata.Namespace == namespace
		if p.NamespaceSelector != nil {
			in = p.NamespaceSelector.selects(s.namespaces[pod.Metadata.Namespace])
		}
		if in && (p.PodSelector == nil || p.PodSelector.selects(pod.Metadata.Labels)) {
			all = append(all, pod.Status.PodIP)
		}
	}
	return all
}

// rules are iptables' for everything that the node forwards. A pod that a policy selects
// lets in, or out, what one of its policies allows, and nothing else.
func (s state) rules() string {
	var chains, jumps, rules strings.Builder
	for i, pod := range s.pods {
		for _, direction := range []struct{ name, here, there string }{{"Ingress", "-d", "-s"}, {"Egress", "-s", "-d"}} {
			chain, selected := fmt.Sprintf("POD-%s-%d", direction.name, i), false
			for _, p := range s.policies {
				if p.Metadata.Namespace != pod.Metadata.Namespace || !p.Spec.PodSelector.selects(pod.Metadata.Labels) || !slices.Contains(p.Spec.PolicyTypes, direction.name) {
					continue
				}
				selected = true
				allowed := p.Spec.Ingress
				if direction.name == "Egress" {
					allowed = p.Spec.Egress
				}
				for _, r := range allowed {
					peers := append(r.From, r.To...)
					addresses := []string{"0.0.0.0/0"}
					if len(peers) > 0 {
						addresses = nil
						for _, peer := range peers {
							addresses = append(addresses, s.addresses(peer, p.Metadata.Namespace)...)
						}
					}
					for _, address := range addresses {
						for _, match := range s.ports(r, pod, address, direction.name) {
							fmt.Fprintf(&rules, "-A %s %s %s %s -j RETURN\n", chain, direction.there, address, match)
						}
					}
				}
			}
			if selected {
				fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
				fmt.Fprintf(&jumps, "-A POLICIES %s %s -j %s\n", direction.here, pod.Status.PodIP, chain)
				fmt.Fprintf(&rules, "-A %s -j DROP\n", chain)
			}
		}
	}
	return "*filter\n:POLICIES - [0:0]\n" + chains.String() + "-A POLICIES -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN\n" +
		jumps.String() + rules.String() + "COMMIT\n"
}

// ports are the matches of a rule's ports, whose names are those of the pod that is
// connected to.
func (s state) ports(r rule, selected pod, other, direction string) (matches []string) {
	if len(r.Ports) == 0 {
		return []string{""}
	}
	for _, port := range r.Ports {
		number := port.Port
		if name, ok := port.Port.(string); ok {
			for _, to := range s.pods {
				if direction == "Ingress" && to.Status.PodIP != selected.Status.PodIP || direction == "Egress" && to.Status.PodIP != other {
					continue
				}
				for _, container := range to.Spec.Containers {
					for _, p := range container.Ports {
						if p.Name == name {
							number = p.ContainerPort
						}
					}
				}
			}
		}
		matches = append(matches, fmt.Sprintf("-p %s --dport %v", strings.ToLower(port.Protocol), number))
	}
	return matches
}

// enforce has the node enforce the NetworkPolicies, as a network plugin would, until the
// test ends: every half second, it brings the node's rules up to date.
func (c *cluster) enforce() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	c.t.Cleanup(func() { cancel(); group.Wait() })
	inNode := func(input io.Reader, command ...string) error {
		docker := c.Engine.Command(context.Background(), append([]string{"exec", "--interactive", node}, command...)...)
		docker.Stdin = input
		return standin.Run(docker)
	}
	var last string
	update := func() error {
		s, err := c.state()
		if err != nil {
			return err
		}
		rules := s.rules()
		if rules == last {
			return nil
		}
		if err := inNode(bytes.NewBufferString(rules), "iptables-restore", "--noflush"); err != nil {
			return err
		}
		last = rules
		return nil
	}
	kit.Must(c.t, update())
	kit.Must(c.t, inNode(nil, "iptables", "--insert", "FORWARD", "--jump", "POLICIES"))
	c.Say("NetworkPolicies are enforced: %d rules", strings.Count(last, "\n-A "))
	t := c.T
	group.Go(func() {
		failing := time.Time{}
		for ctx.Err() == nil {
			switch err := update(); {
			case err == nil:
				failing = time.Time{}
			case failing.IsZero():
				failing = time.Now() // the API server may be busy; the next update comes soon
			case time.Since(failing) > time.Minute:
				t.Errorf("NetworkPolicies are not enforced any more: %v", err)
				return
			}
			kit.Pause(500 * time.Millisecond)
		}
	})
}

// cut checks that a pod which may not is kept from a store: the pod of Redis has no
// business with Postgres, and what it sends there is dropped.
func (c *cluster) cut(enforced bool) {
	c.t.Helper()
	to := c.must("get", "pod", "postgres-0", "--output", "jsonpath={.status.podIP}")
	_, err := c.kubectl("--namespace", namespace, "exec", "redis-0", "--", "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+to+"/5432")
	const timedOut = 124 // of timeout
	var ended *exec.ExitError
	if dropped := errors.As(err, &ended) && ended.ExitCode() == timedOut; dropped != enforced || err != nil && !dropped {
		c.t.Errorf("with policies enforced %v, a connection from Redis' pod to Postgres: %v", enforced, err)
	}
}

// strangers checks that a pod has no credentials of the cluster, that no function may read
// Secrets there, and that a function believes nobody without the gateway's statement.
func (c *cluster) strangers() {
	c.t.Helper()
	if printed, err := c.kubectl("--namespace", namespace, "exec", "redis-0", "--", "ls", "/var/run/secrets/kubernetes.io"); err == nil || !strings.Contains(printed, "No such file") {
		c.t.Errorf("Redis' pod has credentials: %s", printed)
	}
	if volumes := c.must("get", "pods", "--output", "jsonpath={.items[*].spec.volumes[*].name}"); strings.Contains(volumes, "kube-api-access") {
		c.t.Errorf("a pod has credentials: %s", volumes)
	}
	for _, f := range functions.All {
		if answer, err := c.kubectl("--namespace", namespace, "auth", "can-i", "get", "secrets", "--as", "system:serviceaccount:"+namespace+":"+f.Name); err == nil || strings.TrimSpace(answer) != "no" {
			c.t.Errorf("may %s read Secrets: %s", f.Name, answer)
		}
	}
	host := "grant." + namespace + ".svc.cluster.local"
	answer := c.must("exec", "redis-0", "--", "timeout", "60", "bash", "-c", `exec 3<>/dev/tcp/`+host+`/80
printf 'POST `+system.GrantsPath+` HTTP/1.1\r\nHost: `+host+`\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}' >&3; cat <&3`)
	if !strings.HasPrefix(answer, "HTTP/1.1 401") || !strings.Contains(answer, "statement_invalid") {
		c.t.Errorf("a grant without the gateway's statement is answered %s", answer)
	}
	c.Say("a pod without rights: no credentials, no Secrets, and no function that believes it")
}
