package main

import (
	"slices"
	"strings"
	"text/template"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// secret is a setting that comes from a Secret of the platform, one Secret per concern,
// so that a function gets what it needs and nothing else.
type secret struct {
	Setting  string
	Secret   string // its name
	Key      string // in the Secret
	Optional bool   // the function starts without it
}

// deployed is a function as a platform deploys it.
type deployed struct {
	fn.Function
}

// Secrets returns those that the function needs, and its optional ones.
func (d deployed) Secrets() []secret {
	var all []secret
	for _, domain := range d.Domains {
		all = append(all, secret{strings.ToUpper(domain) + "_DATABASE_URL", "database-" + strings.ReplaceAll(domain, "_", "-"), "url", false})
	}
	for _, store := range []fn.Store{fn.Redis, fn.NATS, fn.RabbitMQ} {
		if slices.Contains(d.Stores, store) || slices.Contains(d.Optional, store) {
			name := string(store)
			if store != fn.RabbitMQ { // where the function has a user of its own
				name += "-" + d.Name
			}
			// Only TRANSFER_BROKER=rabbitmq needs RabbitMQ.
			optional := !slices.Contains(d.Stores, store) || store == fn.RabbitMQ
			all = append(all, secret{strings.ToUpper(string(store)) + "_URL", name, "url", optional})
		}
	}
	switch {
	case d.Public:
		all = append(all, secret{"IDENTITY_SIGNING_KEY", "identity-signing", "key", false}, secret{"OIDC_CLIENT_SECRET", "oidc-client", "secret", true})
	case len(d.Routes)+len(d.Events) > 0:
		all = append(all, secret{"IDENTITY_VERIFY_KEYS", "identity-verify", "keys", false})
	}
	if slices.Contains(d.Rights.Keys, "session:*") {
		all = append(all, secret{"SESSION_REDIS_URL", "session-redis", "url", true})
	}
	if d.Delivers() {
		all = append(all, secret{"WEBHOOK_SECRETS", "webhook", "secrets", true})
	}
	return all
}

// Allocates reports whether the function asks Agones for game servers.
func (d deployed) Allocates() bool { return slices.Contains(d.Reaches, fn.Allocator) }

// Delivers reports whether the function sends webhooks.
func (d deployed) Delivers() bool { return slices.Contains(d.Reaches, fn.Webhooks) }

// Calls reports whether the function reaches others.
func (d deployed) Calls() bool { return d.Public || len(d.Wakes) > 0 }

// Component groups functions that scale alike: front answers people, worker drains, and
// of single one instance is enough.
func (d deployed) Component() string {
	switch {
	case d.MaxScale == 1:
		return "single"
	case d.Schedule > 0:
		return "worker"
	}
	return "front"
}

// CPU is what a pod of the function asks for: about what it takes while 200 grants pass in a
// second (docs/platforms.md).
func (d deployed) CPU() string {
	switch {
	case d.Public:
		return "100m"
	case d.Component() == "front":
		return "50m"
	}
	return "20m"
}

// Memory is what a pod asks for: twice what it was seen to use.
func (d deployed) Memory() string {
	if d.Public {
		return "64Mi"
	}
	return "32Mi"
}

// registry is all functions as a platform deploys them.
func registry() []deployed {
	var all []deployed
	for _, f := range functions.All {
		all = append(all, deployed{f})
	}
	return all
}

// needing returns the names of the functions for which need holds.
func needing(need func(deployed) bool) []string {
	var names []string
	for _, d := range registry() {
		if need(d) {
			names = append(names, d.Name)
		}
	}
	return names
}

// uses returns a condition for needing: that the function uses the store.
func uses(store fn.Store) func(deployed) bool {
	return func(d deployed) bool {
		return slices.Contains(d.Stores, store) || slices.Contains(d.Optional, store)
	}
}

// render fills in a template of a generated file; all of them begin alike.
func render(text string, data any) ([]byte, error) {
	parsed, err := template.New("").Parse(text)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	out.WriteString("# Generated from functions/functions.go by infra/generate; change it there.\n")
	err = parsed.Execute(&out, data)
	return []byte(out.String()), err
}
