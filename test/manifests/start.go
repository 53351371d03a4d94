package check

import (
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Variables of the Go runtime, which are not settings.
var goVariables = map[string]bool{"GOMEMLIMIT": true}

// start starts each function as infra/miniserver does, with its container's environment;
// Secrets that only a cluster has are made up. Functions connect to nothing before their
// first request.
func start(b *Build, pods []pod, p *problems) {
	for _, pod := range pods {
		if pod.function == "" && pod.document.Name() != "migrate" {
			continue
		}
		for _, c := range pod.Spec.Containers {
			if c.Name == "queue-proxy" {
				continue
			}
			environment := b.environment(c)
			for name := range environment {
				if !isSetting(name) && !goVariables[name] && name != "PORT" && !strings.HasPrefix(name, "K_") {
					p.add("%s: there is no setting %s", pod.document, name)
				}
			}
			s, err := settings.LoadFrom(environment)
			if err != nil {
				p.add("%s: %w", pod.document, err)
				continue
			}
			if pod.function == "" {
				if len(c.Command) > 0 || !slices.Equal(c.Args, []string{"migrate"}) {
					p.add("%s: it runs %q %q, not migrate", pod.document, c.Command, c.Args)
				}
				if s.MigrationDatabaseURL == "" {
					p.add("%s: MIGRATION_DATABASE_URL is not set", pod.document)
				}
				for _, role := range migrations.Roles {
					if s.Database(role.Name) == "" {
						p.add("%s: nobody makes the login of %s", pod.document, role.Name)
					}
				}
				continue
			}
			if len(c.Command)+len(c.Args) > 0 {
				p.add("%s: it runs %q %q, and functions are served", pod.document, c.Command, c.Args)
			}
			if s.Function != pod.function {
				p.add("%s: FUNCTION is %s", pod.document, s.Function)
			}
			if s.Schedule != "off" {
				p.add("%s: SCHEDULE is %s, and PingSources tick too", pod.document, s.Schedule)
			}
			if len(pod.databases()) > 0 && s.PostgresExecMode == "cache_statement" {
				p.add("%s: POSTGRES_EXEC_MODE is %s, whose start-up parameters PgBouncer refuses", pod.document, s.PostgresExecMode)
			}
			want := "http://{function}." + pod.document.Namespace() + ".svc.cluster.local"
			if s.FunctionURL != want {
				p.add("%s: FUNCTION_URL is %s; Services are at %s", pod.document, s.FunctionURL, want)
			}
			if f, err := starts(s); err != nil {
				p.add("%s: %w", pod.document, err)
			} else {
				givenMore(pod, f, environment, p)
			}
		}
	}
}

// databases returns the domains of the pod's function.
func (p pod) databases() []string {
	f, _ := functions.Named(p.function)
	return f.Domains
}

// starts builds the function that the settings select.
func starts(s settings.Settings) (fn.Function, error) {
	f, err := functions.Named(s.Function)
	if err != nil {
		return f, err
	}
	rt := fn.NewRuntime(s, slog.New(slog.DiscardHandler), functions.All)
	defer rt.Close()
	if s.FunctionURL != "" {
		if rt.Invoke, err = transport.Remote(s.FunctionURL); err != nil {
			return f, err
		}
	}
	return f, rt.Host(f)
}

// givenMore finds secrets and rights that the function does not need: whoever takes over
// a function has all that it was given.
func givenMore(pod pod, f fn.Function, environment map[string]string, p *problems) {
	uses := func(store fn.Store) bool {
		return slices.Contains(f.Stores, store) || slices.Contains(f.Optional, store)
	}
	needed := map[string]bool{
		"DATABASE_URL": false, "MIGRATION_DATABASE_URL": false,
		"REDIS_URL": uses(fn.Redis), "NATS_URL": uses(fn.NATS), "RABBITMQ_URL": uses(fn.RabbitMQ),
		"IDENTITY_SIGNING_KEY": f.Public, "OIDC_CLIENT_SECRET": f.Public, "SESSION_REDIS_URL": slices.Contains(f.Rights.Keys, "session:*"),
		"WEBHOOK_SECRETS": slices.Contains(f.Reaches, fn.Webhooks),
	}
	for _, role := range migrations.Roles {
		needed[strings.ToUpper(role.Name)+"_DATABASE_URL"] = slices.Contains(f.Domains, role.Name)
	}
	for _, name := range []string{"REDIS_URL", "NATS_URL"} {
		u, err := url.Parse(environment[name])
		if err != nil {
			continue // reported by the settings
		}
		if _, ours := functions.Users()[u.User.Username()]; ours && u.User.Username() != f.Name {
			p.add("%s has the rights of %s in %s", pod.document, u.User.Username(), name)
		}
	}
	for name, need := range needed {
		if _, given := environment[name]; given && !need {
			p.add("%s is given %s and does not need it", pod.document, name)
		}
	}
}

// environment returns a container's environment. Its own variables take precedence.
func (b *Build) environment(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil {
			continue
		}
		if d := b.Find("ConfigMap", from.ConfigMapRef.Name); d != nil {
			config, _ := d.Object.(*corev1.ConfigMap)
			for name, value := range config.Data {
				values[name] = value
			}
		}
	}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			values[e.Name] = e.Value
		case e.ValueFrom.SecretKeyRef != nil:
			ref := e.ValueFrom.SecretKeyRef
			if d := b.Find("Secret", ref.Name); d != nil {
				secret, _ := d.Object.(*corev1.Secret)
				values[e.Name] = string(secret.Data[ref.Key])
			} else if _, expected := b.Expected[ref.Name]; expected {
				values[e.Name] = madeUp(e.Name)
			}
		}
	}
	return values
}

// madeUp returns a secret in the setting's format.
func madeUp(name string) string {
	private, public, err := auth.NewKeyPair()
	switch {
	case err != nil:
		return ""
	case name == "IDENTITY_SIGNING_KEY":
		return private
	case name == "IDENTITY_VERIFY_KEYS":
		return public
	case name == "REDIS_URL", name == "SESSION_REDIS_URL":
		return "rediss://user:secret@redis.example.com:6379/0"
	case name == "NATS_URL":
		return "tls://user:secret@nats.example.com:4222"
	case name == "RABBITMQ_URL":
		return "amqps://user:secret@rabbitmq.example.com/"
	case name == "WEBHOOK_SECRETS":
		return "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	case strings.HasSuffix(name, "_DATABASE_URL"):
		return "postgres://user:secret@pgbouncer:6432/miniserver"
	}
	return "secret"
}

// isSetting reports whether a variable is one of pkg/settings.
func isSetting(name string) bool {
	fields := reflect.TypeFor[settings.Settings]()
	for i := range fields.NumField() {
		if fields.Field(i).Tag.Get("env") == name {
			return true
		}
	}
	return false
}

func probePath(probe *corev1.Probe) string {
	if probe == nil || probe.HTTPGet == nil {
		return ""
	}
	return probe.HTTPGet.Path
}
