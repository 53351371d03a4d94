package check_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/manifests"
)

// fault is a mistake that somebody could make in a manifest.
type fault struct {
	name string
	// The mistake, in the document of this kind and name; nil leaves the document out.
	kind, in string
	make     func(at node)
	// message is what a check must report, and reports for no build without the fault.
	message string
	folder  string // overlays/kind unless said otherwise
}

// node is an object in a document.
type node map[string]any

// at descends by names; "0" is the first of a list.
func (n node) at(path ...string) node {
	here := any(map[string]any(n))
	for _, name := range path {
		if list, ok := here.([]any); ok {
			here = list[0]
			continue
		}
		here = here.(map[string]any)[name]
	}
	if list, ok := here.([]any); ok {
		here = list[0]
	}
	return here.(map[string]any)
}

func (n node) pod() node       { return n.at("spec", "template", "spec") }
func (n node) container() node { return n.pod().at("containers") }
func (n node) scale() node     { return n.at("spec", "template", "metadata", "annotations") }

// env returns a variable of the container.
func (n node) env(name string) node {
	for _, e := range n.container()["env"].([]any) {
		if e := e.(map[string]any); e["name"] == name {
			return e
		}
	}
	panic("no " + name)
}

var faults = []fault{
	// Knative's Services.
	{
		name: "misspelled field", kind: "Service", in: "grant", message: `unknown field "spec.template.spec.containerConcurency"`,
		make: func(n node) { n.pod()["containerConcurency"] = 64 },
	},
	{
		name: "field in another case", kind: "Service", in: "grant", message: `unknown field "spec.template.spec.TimeoutSeconds"`,
		make: func(n node) { n.pod()["TimeoutSeconds"] = 10 },
	},
	{
		name: "timeout over the cluster's", kind: "Service", in: "stream", message: "expected 0 <= 700 <= 600",
		make: func(n node) { n.pod()["timeoutSeconds"] = 700 },
	},
	{
		name: "another timeout than the registry's", kind: "Service", in: "stream", message: "timeoutSeconds is not the registry's 5m0s",
		make: func(n node) { n.pod()["timeoutSeconds"] = 60 },
	},
	{
		name: "negative concurrency", kind: "Service", in: "grant", message: "expected 0 <= -1 <= 1000",
		make: func(n node) { n.pod()["containerConcurrency"] = -1 },
	},
	{
		name: "min-scale over max-scale", kind: "Service", in: "gateway", message: "min-scale=9",
		make: func(n node) { n.scale()["autoscaling.knative.dev/min-scale"] = "9" },
	},
	{
		name: "min-scale under the registry's", kind: "Service", in: "relay", message: "min-scale 0 is below the registry's 1",
		make: func(n node) { n.scale()["autoscaling.knative.dev/min-scale"] = "0" },
	},
	{
		name: "two of a single one", kind: "Service", in: "watchdog", message: "max-scale is 2, the registry's is 1",
		make: func(n node) { n.scale()["autoscaling.knative.dev/max-scale"] = "2" },
	},
	{
		name: "misspelled autoscaling metric", kind: "Service", in: "grant", message: "autoscaling.knative.dev/metric",
		make: func(n node) { n.scale()["autoscaling.knative.dev/metric"] = "concurency" },
	},
	{
		name: "unknown function", kind: "Service", in: "grant", message: `there is no function "grants"`,
		make: func(n node) { n.env("FUNCTION")["value"] = "grants" },
	},
	{
		name: "another function than its name", kind: "Service", in: "grant", message: "Service grant: FUNCTION is revoke",
		make: func(n node) { n.env("FUNCTION")["value"] = "revoke" },
	},
	{name: "a Service that is gone", kind: "Service", in: "inbox", message: "function inbox has no Service"},
	{
		name: "a private function in public", kind: "Service", in: "grant", message: "cluster-local is false",
		make: func(n node) { delete(n.at("metadata", "labels"), "networking.knative.dev/visibility") },
	},
	{
		name: "a probe at another path", kind: "Service", in: "grant", message: `a probe asks "/healthz"`,
		make: func(n node) { n.container().at("livenessProbe", "httpGet")["path"] = "/healthz" },
	},
	{
		name: "an image that is no command", kind: "Service", in: "grant", message: "infra/served is no command",
		make: func(n node) { n.container()["image"] = "ko://github.com/miniserversystem/miniserver/infra/served" },
	},
	{
		name: "an image without a version", kind: "Deployment", in: "pgbouncer", message: "neither a version nor a digest",
		make: func(n node) { n.container()["image"] = "docker.io/edoburu/pgbouncer" },
	},
	{
		name: "another namespace in FUNCTION_URL", kind: "Service", in: "gateway", message: "FUNCTION_URL",
		make: func(n node) { n.env("FUNCTION_URL")["value"] = "http://{function}.default.svc.cluster.local" },
	},

	// Ticks.
	{
		name: "@every", kind: "PingSource", in: "relay", message: "@every",
		make: func(n node) { n.at("spec")["schedule"] = "@every 1s" },
	},
	{
		name: "five fields of cron", kind: "PingSource", in: "cleanup", message: "has not six fields",
		make: func(n node) { n.at("spec")["schedule"] = "* * * * *" },
	},
	{
		name: "another schedule than the registry's", kind: "PingSource", in: "watchdog", message: "ticks every 1s, the registry says 10s",
		make: func(n node) { n.at("spec")["schedule"] = "* * * * * *" },
	},
	{
		name: "a tick to another path", kind: "PingSource", in: "relay", message: "does not go to /tick",
		make: func(n node) { n.at("spec", "sink")["uri"] = "/ticks" },
	},
	{
		name: "a tick of somebody else", kind: "PingSource", in: "relay", message: "ticks somebody else",
		make: func(n node) { n.at("spec", "sink", "ref")["name"] = "notify" },
	},
	{
		name: "data that is no JSON", kind: "PingSource", in: "relay", message: "spec.data",
		make: func(n node) { n.at("spec")["data"] = "{" },
	},
	{name: "no tick", kind: "PingSource", in: "deliver", message: "function deliver has a schedule and no PingSource"},
	{
		name: "a tick of a function without schedule", kind: "PingSource", in: "deliver", message: "PingSource grant: no such function has a schedule",
		make: func(n node) { n.at("metadata")["name"] = "grant" },
	},

	// Pods.
	{
		name: "privileged container", kind: "Deployment", in: "pgbouncer", message: "privileged",
		make: func(n node) { n.container().at("securityContext")["privileged"] = true },
	},
	{
		name: "a function as root", kind: "Service", in: "grant", message: "runAsUser=0",
		make: func(n node) { n.container().at("securityContext")["runAsUser"] = 0 },
	},
	{
		name: "a function with capabilities", kind: "Service", in: "grant", message: "unrestricted capabilities",
		make: func(n node) { delete(n.container().at("securityContext"), "capabilities") },
	},
	{
		name: "a Job without seccomp", kind: "Job", in: "migrate", message: "seccompProfile",
		make: func(n node) { delete(n.pod().at("securityContext"), "seccompProfile") },
	},
	{
		name: "a lax namespace", kind: "Namespace", in: "miniserver", message: "does not enforce Pod Security restricted",
		make: func(n node) { n.at("metadata", "labels")["pod-security.kubernetes.io/enforce"] = "baseline" },
	},
	{
		name: "a token in the pod", kind: "Service", in: "grant", message: "Service grant: its pods have a service account token",
		make: func(n node) { delete(n.pod(), "automountServiceAccountToken") },
	},
	{
		name: "a token for the account", kind: "ServiceAccount", in: "grant", message: "ServiceAccount grant gives its pods a token",
		make: func(n node) { n["automountServiceAccountToken"] = true },
	},
	{
		name: "somebody else's account", kind: "Service", in: "grant", message: "its ServiceAccount is revoke",
		make: func(n node) { n.pod()["serviceAccountName"] = "revoke" },
	},
	{
		name: "no memory limit", kind: "StatefulSet", in: "redis", message: "no requests or no memory limit",
		make: func(n node) { delete(n.container(), "resources") },
	},

	// Settings and secrets.
	{name: "missing secret", kind: "Secret", in: "identity-signing", message: "there is no Secret \"identity-signing"},
	{
		name: "missing key of a secret", kind: "Secret", in: "redis-stream", message: `has no key "url"`,
		make: func(n node) { delete(n.at("data"), "url") },
	},
	{
		name: "a login that nobody makes", kind: "Job", in: "migrate", message: "nobody makes the login of transfer",
		make: func(n node) { n.env("TRANSFER_DATABASE_URL")["name"] = "METRICS_ADDRESS" },
	},
	{
		name: "another function's rights", kind: "Secret", in: "nats-stream", message: "has the rights of relay in NATS_URL",
		make: func(n node) {
			n.at("data")["url"] = base64.StdEncoding.EncodeToString([]byte("nats://relay:x@nats:4222"))
		},
	},
	{
		name: "a secret that nobody promised", kind: "Service", in: "grant", folder: "overlays/production", message: `there is no Secret "database-grants"`,
		make: func(n node) {
			n.env("ENTITLEMENT_DATABASE_URL").at("valueFrom", "secretKeyRef")["name"] = "database-grants"
		},
	},
	{
		name: "a key that nobody promised", kind: "Service", in: "grant", folder: "overlays/production", message: `has no key "dsn"`,
		make: func(n node) { n.env("ENTITLEMENT_DATABASE_URL").at("valueFrom", "secretKeyRef")["key"] = "dsn" },
	},
	{
		name: "a setting that there is not", kind: "ConfigMap", in: "settings", message: "there is no setting WAKE",
		make: func(n node) { n.at("data")["WAKE"] = "true" },
	},
	{
		name: "a setting out of range", kind: "ConfigMap", in: "settings", message: "POSTGRES_POOL_SIZE must be 2 to 1000",
		make: func(n node) { n.at("data")["POSTGRES_POOL_SIZE"] = "0" },
	},
	{
		name: "a function that ticks itself", kind: "ConfigMap", in: "settings", message: "SCHEDULE is auto",
		make: func(n node) { n.at("data")["SCHEDULE"] = "auto" },
	},
	{
		name: "the channel for all functions", kind: "ConfigMap", in: "settings", message: "NOTIFICATION_CHANNEL=webhook needs",
		make: func(n node) { n.at("data")["NOTIFICATION_CHANNEL"] = "webhook" },
	},
	{
		name: "statements that stay prepared", kind: "ConfigMap", in: "settings", message: "Service grant: POSTGRES_EXEC_MODE is cache_statement",
		make: func(n node) { delete(n.at("data"), "POSTGRES_EXEC_MODE") },
	},
	{
		name: "no issuer", kind: "ConfigMap", in: "settings", message: "function gateway needs OIDC_ISSUER",
		make: func(n node) { delete(n.at("data"), "OIDC_ISSUER") },
	},
	{
		name: "the wrong database", kind: "Service", in: "transfer", message: "function transfer needs DATABASE_URL",
		make: func(n node) { n.env("TRANSFER_DATABASE_URL")["name"] = "ACCOUNT_DATABASE_URL" },
	},
	{
		name: "the signing key for others", kind: "Service", in: "grant", message: "Service grant is given IDENTITY_SIGNING_KEY and does not need it",
		make: func(n node) {
			n.container()["env"] = append(n.container()["env"].([]any), map[string]any{"name": "IDENTITY_SIGNING_KEY", "value": "{}"})
		},
	},
	{
		name: "a database of another domain", kind: "Service", in: "ticket", message: "Service ticket is given TRANSFER_DATABASE_URL and does not need it",
		make: func(n node) {
			n.container()["env"] = append(n.container()["env"].([]any), map[string]any{"name": "TRANSFER_DATABASE_URL", "value": "postgres://x@y/z"})
		},
	},
	{
		name: "a broken key", kind: "Secret", in: "identity-verify", message: "Service grant",
		make: func(n node) { n.at("data")["keys"] = "bm9uZQ==" },
	},
	{
		name: "a Job that serves", kind: "Job", in: "migrate", message: "not migrate",
		make: func(n node) { delete(n.container(), "args") },
	},
	{
		name: "the Job without its database", kind: "Job", in: "migrate", message: "MIGRATION_DATABASE_URL",
		make: func(n node) { n.env("MIGRATION_DATABASE_URL")["name"] = "MIGRATE_DATABASE_URL" },
	},
	{name: "missing config", kind: "ConfigMap", in: "pgbouncer", message: "Deployment pgbouncer: there is no ConfigMap"},

	// The network.
	{name: "no default-deny", kind: "NetworkPolicy", in: "default-deny", message: "no NetworkPolicy denies everything first"},
	{name: "no way to Redis", kind: "NetworkPolicy", in: "to-redis", message: "function ticket may reach"},
	{name: "no way for wakes", kind: "NetworkPolicy", in: "to-functions", message: "function relay may reach"},
	{name: "no way in", kind: "NetworkPolicy", in: "from-knative", message: "function grant is not reached by activator"},
	{name: "no way into Postgres", kind: "NetworkPolicy", in: "postgres", message: "Deployment pgbouncer to StatefulSet postgres at 5432 (NetworkPolicy): let out true, let in false"},
	{
		name: "a way that nobody needs", kind: "NetworkPolicy", in: "to-nats", message: "function grant may reach",
		make: func(n node) {
			in := n.at("spec", "podSelector", "matchExpressions")
			in["values"] = append(in["values"].([]any), "grant")
		},
	},
	{
		name: "a way past PgBouncer", kind: "NetworkPolicy", in: "to-postgres", message: "lets function account reach port 5432 of what nobody needs",
		make: func(n node) { n.at("spec", "egress", "0", "ports")["port"] = 5432 },
	},
	{
		name: "everything reachable", kind: "NetworkPolicy", in: "to-redis", message: "reach everything",
		make: func(n node) { delete(n.at("spec", "egress"), "to") },
	},
	{
		name: "functions open to all", kind: "NetworkPolicy", in: "from-knative", message: "is reached past Knative",
		make: func(n node) { delete(n.at("spec", "ingress"), "from") },
	},
	{
		name: "a policy for nobody", kind: "NetworkPolicy", in: "redis", message: "NetworkPolicy redis selects nobody",
		make: func(n node) { n.at("spec", "podSelector", "matchLabels")["app.kubernetes.io/name"] = "rediss" },
	},
	{name: "a closed way for webhooks", kind: "NetworkPolicy", in: "to-webhooks", folder: "overlays/production", message: "function deliver may reach"},

	// Channels.
	{
		name: "a channel on our stream", kind: "NatsJetStreamChannel", in: "wake-notify", message: "a stream of ours would be deleted",
		make: func(n node) { n.at("spec", "stream")["overrideName"] = "ENTITLEMENT_EVENTS" },
	},
	{
		name: "a source that there is not", kind: "NatsJetStreamChannel", in: "wake-settle", message: `"TRANSFERS"`,
		make: func(n node) { n.at("spec", "stream", "config", "sources")["name"] = "TRANSFERS" },
	},
	{
		name: "a channel that holds everything", kind: "NatsJetStreamChannel", in: "wake-settle", message: "must be bounded",
		make: func(n node) { delete(n.at("spec", "stream", "config"), "maxMsgs") },
	},
	{
		name: "a subscriber that there is not", kind: "Subscription", in: "wake-notify", message: `there is no Knative Service "notifier"`,
		make: func(n node) { n.at("spec", "subscriber", "ref")["name"] = "notifier" },
	},
	{name: "a subscription to nothing", kind: "NatsJetStreamChannel", in: "wake-notify", message: "Subscription wake-notify: there is no NatsJetStreamChannel"},

	// Disruption.
	{
		name: "a budget for nobody", kind: "PodDisruptionBudget", in: "grant", folder: "overlays/production", message: "PodDisruptionBudget grant selects nobody",
		make: func(n node) {
			n.at("spec", "selector", "matchLabels")["serving.knative.dev/service"] = "grants"
		},
	},
}

// Every mistake of the table is found, with a message that names it and that no build
// without it has.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			folder := f.folder
			if folder == "" {
				folder = "overlays/kind"
			}
			b := build(t, folder)
			plant(t, b, f)
			found := check.Check(b)
			if !slices.ContainsFunc(found, func(err error) bool { return strings.Contains(err.Error(), f.message) }) {
				t.Errorf("no check reports %q, only %v", f.message, found)
			}
		})
	}
}

func plant(t testing.TB, b *check.Build, f fault) {
	t.Helper()
	for i, d := range b.Documents {
		// kustomize appends a hash to what it generates.
		name, _, _ := strings.Cut(strings.TrimPrefix(d.Name(), f.in), "-")
		generated := (f.kind == "Secret" || f.kind == "ConfigMap") && strings.HasPrefix(d.Name(), f.in+"-") && strings.Count(strings.TrimPrefix(d.Name(), f.in), "-") == 1
		if d.Kind().Kind != f.kind || !generated && d.Name() != f.in || name != "" && !generated {
			continue
		}
		if f.kind == "Service" && d.Kind().Group == "" {
			continue // Kubernetes' own Service
		}
		if f.make == nil {
			b.Documents = slices.Delete(b.Documents, i, i+1)
		} else {
			f.make(node(d.Raw))
		}
		return
	}
	t.Fatalf("there is no %s %s", f.kind, f.in)
}
