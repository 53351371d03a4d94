//go:build cluster

package kind_test

import (
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
)

// answersAfter waits until grants are answered that were not before.
func (c *cluster) answersAfter(load *deployed.Load, what string) {
	c.t.Helper()
	before := load.Answered()
	kit.Within(c.t, settles, "grants are answered after "+what, func() bool { return load.Answered() > before })
}

// disturb deletes a pod of each function, and then of each store, while clients grant and
// try again until they are answered. Nothing that was answered is lost, or told twice.
func (c *cluster) disturb() {
	c.t.Helper()
	load := c.Load(c.t, deployed.Grants{Clients: 4, Patient: true})
	for _, f := range functions.All {
		if c.pods(f.Name) > 0 {
			c.must("delete", "pod", "--wait=false", "--selector", "serving.knative.dev/service="+f.Name)
			c.answersAfter(load, "the pods of "+f.Name+" were deleted")
		}
	}
	c.Say("pods of all functions were deleted: %d grants answered, the longest pause %s", load.Answered(), load.Pause().Round(100*time.Millisecond))
	for _, store := range []string{"redis-0", "nats-0", "postgres-0"} {
		c.must("delete", "pod", store) // waits until it has ended
		c.answersAfter(load, store+" was deleted")
		c.must("wait", "--for=condition=Ready", "--timeout=5m", "pod/"+store)
		c.answersAfter(load, store+" is ready again")
		c.Say("%s was deleted and is ready again: the longest pause between two grants %s", store, load.Pause().Round(100*time.Millisecond))
	}
	c.Say("all %d answered grants are there, each with one notification", c.ended(load))
}

// drain empties the only node while clients grant, as one does before it is started again:
// every pod, of the stores and of Knative, too, ends and comes back. Evictions would wait
// for ever there, because Knative allows none of its activator's last pod, which would also
// take ten minutes to end.
func (c *cluster) drain() {
	c.t.Helper()
	load := c.Load(c.t, deployed.Grants{Clients: 4, Patient: true})
	c.answersAfter(load, "it began")
	began := time.Now()
	defer func() { _, _ = c.kubectl("uncordon", node) }() // also if it was not drained
	c.must("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--disable-eviction", "--grace-period=60", "--timeout=5m")
	c.Say("the node is drained after %s", time.Since(began).Round(time.Second))
	c.must("uncordon", node)
	c.answersAfter(load, "the node was drained")
	for _, store := range []string{"statefulset/postgres", "statefulset/redis", "statefulset/nats", "deployment/pgbouncer", "deployment/keycloak"} {
		c.must("rollout", "status", "--timeout=5m", store)
	}
	c.answersAfter(load, "everything is back")
	c.Say("everything is back after %s: the longest pause between two grants %s", time.Since(began).Round(time.Second), load.Pause().Round(100*time.Millisecond))
	c.Say("all %d answered grants are there, each with one notification", c.ended(load))
}
