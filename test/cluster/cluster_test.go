//go:build knative

package cluster_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/cluster"
	"github.com/miniserversystem/miniserver/test/manifests"
)

const namespace = "miniserver"

// TestKnative applies the kind overlay to a cluster of its own and follows what becomes
// of it, as far as possible without a node.
func TestKnative(t *testing.T) {
	began := time.Now()
	step := func(what string) { t.Logf("%6.1f s  %s", time.Since(began).Seconds(), what) }
	c := cluster.Start(t, programs)
	step("etcd and the API server are ready")
	ingress := cluster.NewIngress(t)
	c.Install(t, servers, "HTTP_PROXY="+ingress.URL)
	step("Knative is installed, its webhooks answer")
	b := manifests(t)
	c.Pretend(t)

	for _, one := range []struct {
		name string
		test func(*testing.T)
	}{
		{"documents are accepted", func(t *testing.T) { accepted(t, c, b) }},
		{"mistakes are refused", func(t *testing.T) { refused(t, c, b) }},
		{"Services become Deployments", func(t *testing.T) { deployed(t, c, b) }},
		{"pods are admitted", func(t *testing.T) { admitted(t, c, b) }},
		{"PingSources find their sinks", func(t *testing.T) { sourced(t, c, b) }},
		{"ticks alone tell of a grant", func(t *testing.T) { ticked(t, c, ingress) }},
	} {
		if !t.Run(one.name, one.test) {
			t.FailNow() // the next step builds on it
		}
		step(one.name)
	}
}

// manifests returns the kind overlay as deploy.sh would apply it.
func manifests(t *testing.T) *check.Build {
	t.Helper()
	made, err := check.Make(filepath.Join("infra", "knative", "overlays", "kind"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := check.Read(cluster.Images(made))
	if err != nil {
		t.Fatal(err)
	}
	// Documents that others refer to come first, as in kubectl's order.
	slices.SortStableFunc(b.Documents, func(x, y *check.Document) int { return order(x) - order(y) })
	return b
}

func order(d *check.Document) int {
	if d.Kind().Kind == "Namespace" {
		return 0
	}
	return 1
}

// accepted applies everything but the two channels, whose CustomResourceDefinition is in
// no available module.
func accepted(t *testing.T, c *cluster.Cluster, b *check.Build) {
	var left []string
	for _, d := range b.Documents {
		if d.Kind().Kind == "NatsJetStreamChannel" {
			left = append(left, d.Name())
			continue
		}
		if err := c.Apply(d, false); err != nil {
			t.Error(err)
		}
		// Applying the same again is accepted.
		if err := c.Apply(d, true); err != nil {
			t.Error("again:", err)
		}
	}
	if !slices.Equal(left, []string{"wake-notify", "wake-settle"}) {
		t.Errorf("not applied are %v, want the two channels", left)
	}
	t.Logf("%d documents", len(b.Documents)-len(left))
}
