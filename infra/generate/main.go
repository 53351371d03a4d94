// Command generate writes the files that are derived from the code: the OpenAPI
// document, the tables of settings, functions and metrics, the manifests and the template for
// AWS Lambda. With -check it writes nothing and fails when one of them is not current.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

func main() {
	check := flag.Bool("check", false, "only check that the files are current")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// generated files, relative to the root of the repository.
var generated = []struct {
	path string
	make func() ([]byte, error)
}{
	{"functions/gateway/openapi.json", func() ([]byte, error) {
		document, err := fn.OpenAPI(functions.All)
		return append(document, '\n'), err
	}},
	{"docs/configuration.md", func() ([]byte, error) { return settings.Markdown(), nil }},
	{"docs/functions.md", functionsPage},
	{"docs/metrics.md", metricsPage},
	{"infra/knative/base/services.yaml", knativeServices},
	{"infra/knative/base/sources.yaml", knativeSources},
	{"infra/knative/base/networkpolicies.yaml", knativePolicies},
	{"infra/knative/overlays/production/functions.yaml", knativeProduction},
	{"infra/knative/overlays/kind/realm.json", keycloakRealm},
	{"infra/knative/overlays/kind/users.acl", func() ([]byte, error) { return redisUsers(kindPassword) }},
	{"infra/knative/overlays/kind/nats.conf", func() ([]byte, error) { return natsUsers(kindPassword) }},
	{"infra/compose/users.acl", func() ([]byte, error) { return redisUsers(composePassword) }},
	{"infra/compose/nats.conf", func() ([]byte, error) { return natsUsers(composePassword) }},
	{"infra/openfaas/stack.yaml", openfaasStack},
	{"infra/lambda/template.yaml", lambdaTemplate},
}

func run(check bool) error {
	for _, g := range generated {
		content, err := g.make()
		if err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		existing, err := os.ReadFile(g.path)
		if err == nil && bytes.Equal(existing, content) {
			continue
		}
		if check {
			return fmt.Errorf("%s is not current; run make generate and commit it", g.path)
		}
		if err := os.WriteFile(g.path, content, 0o644); err != nil {
			return err
		}
		fmt.Println("wrote", g.path)
	}
	return nil
}
