package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
)

// cron is a schedule in six fields, the first of which is seconds. A schedule that cron
// cannot express is refused: the ticks would come at other times.
func cron(every time.Duration) (string, error) {
	switch {
	case every == time.Second:
		return "* * * * * *", nil
	case every == time.Minute:
		return "0 * * * * *", nil
	case every > time.Second && every < time.Minute && every%time.Second == 0 && time.Minute%every == 0:
		return fmt.Sprintf("*/%d * * * * *", every/time.Second), nil
	case every > time.Minute && every < time.Hour && every%time.Minute == 0 && time.Hour%every == 0:
		return fmt.Sprintf("0 */%d * * * *", every/time.Minute), nil
	}
	return "", fmt.Errorf("a schedule of %s cannot be said in cron", every)
}

// knativeServices renders a Service and a ServiceAccount for each function.
func knativeServices() ([]byte, error) {
	return render(`{{range .All}}---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{.Name}}
automountServiceAccountToken: false
---
# {{.Summary}}
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: {{.Name}}
  labels:
    app.kubernetes.io/component: {{.Component}}
{{- if not .Public}}
    networking.knative.dev/visibility: cluster-local
{{- end}}
spec:
  template:
    metadata:
      labels:
        app.kubernetes.io/component: {{.Component}}
      annotations:
        autoscaling.knative.dev/class: kpa.autoscaling.knative.dev
        autoscaling.knative.dev/metric: concurrency
        autoscaling.knative.dev/target: "{{.Concurrency}}"
        autoscaling.knative.dev/target-utilization-percentage: "70"
        autoscaling.knative.dev/min-scale: "{{.MinScale}}"
        autoscaling.knative.dev/max-scale: "{{.MaxScale}}"
    spec:
      serviceAccountName: {{.Name}}
      automountServiceAccountToken: false
      enableServiceLinks: false
      containerConcurrency: {{.Concurrency}}
      timeoutSeconds: {{printf "%.0f" .Timeout.Seconds}}
      containers:
        - name: function
          image: ko://github.com/miniserversystem/miniserver/infra/miniserver
          terminationMessagePolicy: FallbackToLogsOnError # kubectl describe shows why it ended
          ports:
            - containerPort: 8080
          envFrom:
            - configMapRef:
                name: settings
{{- if .Delivers}}
            - configMapRef:
                name: delivery
{{- end}}
          env:
            - name: FUNCTION
              value: {{.Name}}
            - name: FUNCTION_URL
              value: http://{function}.miniserver.svc.cluster.local
            - name: GOMEMLIMIT
              value: 56MiB
{{- if .Allocates}}
            - name: AGONES_CERT_FILE
              value: /etc/agones/tls.crt
            - name: AGONES_KEY_FILE
              value: /etc/agones/tls.key
            - name: AGONES_CA_FILE
              value: /etc/agones/ca.crt
{{- end}}
{{- range .Secrets}}
            - name: {{.Setting}}
              valueFrom:
                secretKeyRef:
                  name: {{.Secret}}
                  key: {{.Key}}
{{- if .Optional}}
                  optional: true
{{- end}}
{{- end}}
          resources:
            requests:
              cpu: {{.CPU}}
              memory: {{.Memory}}
            limits:
              cpu: "1"
              memory: 128Mi
          readinessProbe:
            httpGet:
              path: {{$.Readiness}}
            periodSeconds: 1
            timeoutSeconds: 3
            failureThreshold: 3
          livenessProbe:
            httpGet:
              path: {{$.Liveness}}
            periodSeconds: 10
            timeoutSeconds: 3
            failureThreshold: 3
          securityContext:
            runAsNonRoot: true
            runAsUser: 65532
            runAsGroup: 65532
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
            seccompProfile:
              type: RuntimeDefault
{{- if .Allocates}}
          volumeMounts:
            - name: agones
              mountPath: /etc/agones
              readOnly: true
      volumes:
        - name: agones
          secret:
            secretName: agones-client
            optional: true
{{- end}}
{{end}}`, map[string]any{"All": registry(), "Readiness": fn.ReadinessPath, "Liveness": fn.LivenessPath})
}

// knativeSources renders a PingSource for each function that has a schedule.
func knativeSources() ([]byte, error) {
	type source struct{ Name, Cron string }
	var sources []source
	for _, d := range registry() {
		if d.Schedule == 0 {
			continue
		}
		schedule, err := cron(d.Schedule)
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", d.Name, err)
		}
		sources = append(sources, source{d.Name, schedule})
	}
	return render(`{{range .Sources}}---
apiVersion: sources.knative.dev/v1
kind: PingSource
metadata:
  name: {{.Name}}
spec:
  schedule: "{{.Cron}}"
  contentType: application/json
  data: '{}'
  sink:
    ref:
      apiVersion: serving.knative.dev/v1
      kind: Service
      name: {{.Name}}
    uri: {{$.Tick}}
{{end}}`, map[string]any{"Sources": sources, "Tick": tick.Path})
}

// knativeProduction renders what functions have in production only: a PodDisruptionBudget
// for each that may have several instances, and egress for webhooks, to public addresses
// only.
func knativeProduction() ([]byte, error) {
	return render(`{{range .Several}}---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{.}}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      serving.knative.dev/service: {{.}}
{{end}}---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: to-webhooks
spec:
  podSelector:
    matchExpressions:
      - key: serving.knative.dev/service
        operator: In
        values:
{{- range .Webhooks}}
          - {{.}}
{{- end}}
  policyTypes: [Egress]
  egress:
    - to:
        - ipBlock:
            cidr: 0.0.0.0/0
            except: [10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]
      ports:
        - {protocol: TCP, port: 443}
`, map[string]any{
		"Several":  needing(func(d deployed) bool { return d.Component() != "single" }),
		"Webhooks": needing(deployed.Delivers),
	})
}

// keycloakRealm is the realm of infra/keycloak with the addresses of the kind cluster.
func keycloakRealm() ([]byte, error) {
	realm, err := os.ReadFile("infra/keycloak/realm.json")
	if err != nil {
		return nil, err
	}
	for _, address := range []struct{ from, to string }{
		{"http://127.0.0.1:8080/", "http://gateway.miniserver.localhost:8080/"},
		{"http://host.docker.internal:8080/", "http://gateway.miniserver.svc.cluster.local/"},
	} {
		if !bytes.Contains(realm, []byte(address.from)) {
			return nil, fmt.Errorf("infra/keycloak/realm.json has no %s", address.from)
		}
		realm = bytes.ReplaceAll(realm, []byte(address.from), []byte(address.to))
	}
	return realm, nil
}
