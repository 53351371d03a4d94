//go:build cluster

package kind_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
)

// use is what a kind of container takes.
type use struct {
	count  int
	cpu    time.Duration // since it began
	memory float64       // MiB that it works with, together
}

// uses returns what all containers take, as kubelet counts it, by what they are.
func (c *cluster) uses() map[string]use {
	c.t.Helper()
	var stats struct {
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []struct {
				Name   string
				CPU    struct{ UsageCoreNanoSeconds int64 }
				Memory struct{ WorkingSetBytes float64 }
			}
		}
	}
	kit.Must(c.t, json.Unmarshal([]byte(c.must("get", "--raw", "/api/v1/nodes/"+node+"/proxy/stats/summary")), &stats))
	var pods struct {
		Items []struct{ Metadata metadata }
	}
	kit.Must(c.t, json.Unmarshal([]byte(c.must("get", "pods", "--output", "json")), &pods))
	ours := map[string]string{}
	for _, p := range pods.Items {
		labels := p.Metadata.Labels
		ours[p.Metadata.Name] = cmp.Or(labels["serving.knative.dev/service"], labels["app.kubernetes.io/name"])
	}
	all := map[string]use{}
	for _, p := range stats.Pods {
		for _, container := range p.Containers {
			name := p.PodRef.Namespace
			if name == namespace {
				if name = ours[p.PodRef.Name]; container.Name == "queue-proxy" {
					name = container.Name
				}
			}
			u := all[name]
			u.count++
			u.cpu += time.Duration(container.CPU.UsageCoreNanoSeconds)
			u.memory += container.Memory.WorkingSetBytes / (1 << 20)
			all[name] = u
		}
	}
	return all
}

// costs prints what everything takes while nobody asks, and while 200 requests come each
// second. A row whose containers began or ended meanwhile has no CPU.
func (c *cluster) costs() {
	c.t.Helper()
	const window = 40 * time.Second
	during := func() (before, after map[string]use) {
		before = c.uses()
		kit.Pause(window)
		return before, c.uses()
	}
	kit.Pause(30 * time.Second) // what the scene before left to do
	before, idle := during()
	load := c.Load(c.t, deployed.Grants{Clients: 100, Every: time.Second / 2})
	kit.Pause(20 * time.Second) // until the pods are there
	answered := load.Answered()
	warm, full := during()
	rate := float64(load.Answered()-answered) / window.Seconds()
	c.Say("  containers, CPU and memory, idle and at %.0f grants/s:", rate)
	for _, name := range slices.Sorted(maps.Keys(full)) {
		millis := func(a, b map[string]use) string {
			if a[name].count != b[name].count {
				return "–"
			}
			return fmt.Sprintf("%.0f m", float64((b[name].cpu-a[name].cpu).Milliseconds())/window.Seconds())
		}
		c.Say("  %-20s %4d %8s %5.0f MiB %8d %8s %5.0f MiB", name, idle[name].count, millis(before, idle), idle[name].memory,
			full[name].count, millis(warm, full), full[name].memory)
	}
	c.ended(load)
}
