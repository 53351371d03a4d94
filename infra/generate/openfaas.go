package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn"
)

// openfaasBudget is how long a tick polls: OpenFaaS ticks once a minute at best, and a
// tick ends before the next one begins.
const openfaasBudget = 55 * time.Second

// openfaas is a function in a stack.yaml.
type openfaas struct{ deployed }

// Mounted returns the secrets, which OpenFaaS passes as files only. One that is listed
// must exist, so those that only some settings need are left out.
func (o openfaas) Mounted() []string {
	var names []string
	for _, s := range o.Secrets() {
		if s.Setting != "WEBHOOK_SECRETS" && s.Setting != "RABBITMQ_URL" && s.Setting != "SESSION_REDIS_URL" {
			names = append(names, s.Setting)
		}
	}
	return names
}

// File returns the name of a setting's secret, which is also its file's. In Redis and
// NATS the function has a user of its own.
func (o openfaas) File(setting string) string {
	if setting == "REDIS_URL" || setting == "NATS_URL" {
		setting = o.Name + "_" + setting
	}
	return strings.ToLower(strings.ReplaceAll(setting, "_", "-"))
}

// Least is never 0: functions call each other without OpenFaaS' gateway, which is
// what would start one.
func (o openfaas) Least() int { return max(o.MinScale, 1) }

// Cron returns the schedule, at most once a minute.
func (o openfaas) Cron() (string, error) {
	if o.Schedule <= time.Minute {
		return "* * * * *", nil
	}
	six, err := cron(o.Schedule)
	return strings.TrimPrefix(six, "0 "), err
}

func (o openfaas) Linger() time.Duration {
	if o.Schedule > 0 && o.Schedule < time.Minute {
		return openfaasBudget
	}
	return 0
}

// Poll returns how often a lingering tick polls, "" for the default.
func (o openfaas) Poll() string {
	if o.Schedule <= time.Second {
		return ""
	}
	return o.Schedule.String()
}

func openfaasStack() ([]byte, error) {
	var all []openfaas
	for _, d := range registry() {
		if d.Schedule >= time.Minute && d.Timeout > openfaasBudget+5*time.Second {
			return nil, fmt.Errorf("function %s: a timeout of %s is longer than a minute's cron bears", d.Name, d.Timeout)
		}
		all = append(all, openfaas{d})
	}
	return render(`# infra/openfaas/README.md says how to deploy it.
version: 1.0
provider:
  name: openfaas
  gateway: http://127.0.0.1:8080
functions:
{{- range .All}}
  # {{.Summary}}
  {{.Name}}:
    image: ${MINISERVER_IMAGE:-registry.example.com/miniserver:1.0.0}
    skip_build: true
    readonly_root_filesystem: true
    labels:
      com.openfaas.scale.min: "{{.Least}}"
      com.openfaas.scale.max: "{{.MaxScale}}"
      com.openfaas.scale.zero: "false"
      com.openfaas.scale.type: capacity
      com.openfaas.scale.target: "{{.Concurrency}}"
      com.openfaas.scale.target-proportion: "0.7"
    annotations:
      com.openfaas.health.http.path: {{$.Liveness}}
      com.openfaas.ready.http.path: {{$.Readiness}}
{{- if .Schedule}}
      topic: cron-function
      schedule: "{{.Cron}}"
{{- end}}
    environment:
      FUNCTION: {{.Name}}
      FUNCTION_URL: http://{function}.openfaas-fn.svc.cluster.local:8080
      GOMEMLIMIT: 56MiB
      SCHEDULE: "off"
      WAKES: "true"
      POSTGRES_POOL_SIZE: "8"
{{- if .Public}}
      GATEWAY_URL: ${GATEWAY_URL:-https://game.example.com}
      OIDC_ISSUER: ${OIDC_ISSUER:-https://id.example.com/realms/miniserver}
      TRUSTED_PROXIES: ${TRUSTED_PROXIES:-10.0.0.0/8}
{{- end}}
{{- if .Linger}}
      TICK_BUDGET: {{.Linger}}
      TICK_LINGER: {{.Linger}}
{{- with .Poll}}
      TICK_POLL: {{.}}
{{- end}}
{{- end}}
{{- $f := .}}
{{- range .Mounted}}
      {{.}}_FILE: /var/openfaas/secrets/{{$f.File .}}
{{- end}}
{{- if .Mounted}}
    secrets:
{{- range .Mounted}}
      - {{$f.File .}}
{{- end}}
{{- end}}
    requests:
      cpu: {{.CPU}}
      memory: {{.Memory}}
    limits:
      cpu: "1"
      memory: 128Mi
{{- end}}
`, map[string]any{"All": all, "Liveness": fn.OpenFaaSLivenessPath, "Readiness": fn.OpenFaaSReadinessPath})
}
