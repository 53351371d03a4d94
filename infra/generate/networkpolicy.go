package main

import "github.com/miniserversystem/miniserver/pkg/fn"

// destination is a place, and the functions that reach it. Overlays whose stores are
// elsewhere replace the policy's egress, once for all functions.
type destination struct {
	Name, Why string
	Functions []string
	// Where: pods with the labels, of the namespace when it is not this one.
	Namespace string
	Labels    [2]string
	Port      int
}

func destinations() []destination {
	const name = "app.kubernetes.io/name"
	return []destination{
		{"to-postgres", "Through PgBouncer only.", needing(uses(fn.Postgres)), "", [2]string{name, "pgbouncer"}, 6432},
		{"to-redis", "Sessions, limits, queues.", needing(uses(fn.Redis)), "", [2]string{name, "redis"}, 6379},
		{"to-nats", "Events, and nudges to live streams.", needing(uses(fn.NATS)), "", [2]string{name, "nats"}, 4222},
		{"to-rabbitmq", "Completed transfers, where TRANSFER_BROKER says so.", needing(uses(fn.RabbitMQ)), "", [2]string{name, "rabbitmq"}, 5672},
		{"to-issuer", "Keys, sign-in and sign-out.", needing(func(d deployed) bool { return d.Public }), "", [2]string{name, "keycloak"}, 8080},
		{"to-agones", "Game servers for matches.", needing(deployed.Allocates), "agones-system", [2]string{"multicluster.agones.dev/role", "allocator"}, 8443},
		{
			"to-functions", "Calls and wakes go through Knative's internal gateway, which is where Services of the\n# cluster resolve to; which function may be called is then said by who signs the call.",
			needing(deployed.Calls), "kourier-system",
			[2]string{"app", "3scale-kourier-gateway"},
			8081,
		},
	}
}

// knativePolicies renders the network policies: all traffic is denied, except for what
// follows.
func knativePolicies() ([]byte, error) {
	return render(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: default-deny
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: to-dns
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress:
    - to:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: kube-system
          podSelector:
            matchLabels:
              k8s-app: kube-dns
      ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
---
# Requests, ticks and wakes come from Knative's gateway or its activator, to the
# queue-proxy's ports; its autoscaler reads the queue-proxy's metrics.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: from-knative
spec:
  podSelector:
    matchExpressions:
      - key: serving.knative.dev/service
        operator: In
        values:
{{- range .Functions}}
          - {{.}}
{{- end}}
  policyTypes: [Ingress]
  ingress:
    - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: kourier-system
          podSelector:
            matchLabels:
              app: 3scale-kourier-gateway
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: knative-serving
          podSelector:
            matchLabels:
              app: activator
      ports:
        - {protocol: TCP, port: 8012}
        - {protocol: TCP, port: 8013}
        - {protocol: TCP, port: 8112}
    - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: knative-serving
          podSelector:
            matchLabels:
              app: autoscaler
      ports:
        - {protocol: TCP, port: 9090}
{{range .Destinations}}---
# {{.Why}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{.Name}}
spec:
  podSelector:
    matchExpressions:
      - key: serving.knative.dev/service
        operator: In
        values:
{{- range .Functions}}
          - {{.}}
{{- end}}
  policyTypes: [Egress]
  egress:
    - to:
        - podSelector:
            matchLabels:
              {{index .Labels 0}}: {{index .Labels 1}}
{{- if .Namespace}}
          namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: {{.Namespace}}
{{- end}}
      ports:
        - {protocol: TCP, port: {{.Port}}}
{{end}}`, map[string]any{
		"Functions":    needing(func(deployed) bool { return true }),
		"Destinations": destinations(),
	})
}
