//go:build cluster

package kind_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// releases are the files that up.sh applies, and what they are made of in the modules:
// packages whose module has the files, and patterns.
var releases = []struct {
	path string
	from [][]string
	more string
}{
	{"knative/serving/releases/download/%s/serving-crds.yaml", [][]string{
		{serving, "config/core/300-resources/*.yaml"}, {networking, "config/*[^k].yaml"}, {caching, "config/*.yaml"},
	}, ""},
	{"knative/serving/releases/download/%s/serving-core.yaml", [][]string{
		{serving, "config/core/*.yaml", "config/core/200-roles/*.yaml", "config/core/configmaps/*.yaml", "config/core/deployments/*.yaml", "config/core/webhooks/*.yaml"},
		{networking, "config/config-*.yaml"},
	}, ""},
	{"knative-extensions/net-kourier/releases/download/%s/kourier.yaml", [][]string{{kourier, "config/*.yaml"}}, ""},
	{"knative/eventing/releases/download/%s/eventing-crds.yaml", [][]string{{eventing, "config/core/resources/*.yaml"}}, ""},
	{"knative/eventing/releases/download/%s/eventing-core.yaml", [][]string{
		{eventing, "config/core/*.yaml", "config/core/roles/*.yaml", "config/core/configmaps/*.yaml", "config/core/deployments/*.yaml", "config/core/webhooks/*.yaml"},
	}, transformations},
}

const (
	serving    = "knative.dev/serving/cmd/controller"
	eventing   = "knative.dev/eventing/cmd/controller"
	networking = "knative.dev/networking/pkg/config"
	caching    = "knative.dev/caching/pkg/apis/caching"
	kourier    = "kourier"
)

// release is the version that the files have for up.sh.
const release = "standin"

var koImage = regexp.MustCompile(`ko://knative\.dev/(?:(serving|eventing)/cmd/|net-kourier/cmd/)([\w-]+)`)

// cpuRequest is how much of a CPU Knative asks for: together, and with our functions, more
// than two, of which they use a fraction.
var cpuRequest = regexp.MustCompile(`(requests:\s+(?:#[^\n]*\s+)*cpu: "?)\d+m?`)

// images that no test needs, of a program that is no Go.
const transformations = `
apiVersion: v1
kind: ConfigMap
metadata: {name: eventing-transformations-images, namespace: knative-eventing}
data: {transform-jsonata: none}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: eventing-integrations-images, namespace: knative-eventing}
data: {timer-source: none, aws-s3-source: none, aws-sqs-source: none, aws-ddb-streams-source: none,
  log-sink: none, aws-s3-sink: none, aws-sqs-sink: none, aws-sns-sink: none}
`

// localImage is the name of the image of one of our programs.
func localImage(program string) string { return "kind.local/" + program + ":release" }

// writeReleases makes Knative's release files from its modules, and returns their paths.
func (c *cluster) writeReleases(ctx context.Context) (paths []string, err error) {
	for _, r := range releases {
		var all bytes.Buffer
		for _, from := range r.from {
			dir, err := c.folder(ctx, from[0])
			if err != nil {
				return nil, err
			}
			for _, pattern := range from[1:] {
				files, err := filepath.Glob(filepath.Join(dir, pattern))
				if err != nil || len(files) == 0 {
					return nil, fmt.Errorf("%s has no %s: %w", dir, pattern, err)
				}
				for _, file := range files {
					content, err := os.ReadFile(file)
					if err != nil {
						return nil, err
					}
					fmt.Fprintf(&all, "%s\n---\n", content)
				}
			}
		}
		text := koImage.ReplaceAllStringFunc(all.String(), func(found string) string {
			m := koImage.FindStringSubmatch(found)
			return localImage(strings.TrimPrefix(m[1]+"-"+m[2], "-"))
		})
		text = cpuRequest.ReplaceAllString(text, "${1}5m") + r.more
		text = strings.Replace(text, "\n  queue-sidecar-image:", "\n  queue-sidecar-cpu-request: 5m\n  queue-sidecar-image:", 1)
		path := c.file("releases", fmt.Sprintf(r.path, release))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// folder returns that of the module that a package, or Kourier, is in.
func (c *cluster) folder(ctx context.Context, of string) (string, error) {
	if of == kourier {
		return releasedModule(ctx, kourier)
	}
	return c.goList(ctx, of, "Dir")
}
