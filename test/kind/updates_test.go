//go:build cluster

package kind_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/standin"
)

// older is what an update begins from: the last commit with fewer migrations. It gives way
// to the release before, once there is one.
const older = "cbf0441"

// shortStreams has streams handed over while a version is deployed: Knative keeps a pod of
// the version before until its streams have ended.
const shortStreams = "STREAM_LIFETIME=20s"

// olderTree is our tree as it was, with this one's scripts, its issuer, which keeps no keys
// when it is started again, and the pods of its pooler, which then cut their clients off.
func (c *cluster) olderTree() string {
	c.t.Helper()
	tree, archive := c.file("older"), c.file("older.tar")
	kit.Must(c.t, os.RemoveAll(tree))
	kit.Must(c.t, os.MkdirAll(tree, 0o755))
	defer os.Remove(archive)
	kit.Must(c.t, standin.Run(exec.Command("git", "-C", c.Root, "archive", "--output", archive, older)))
	kit.Must(c.t, standin.Run(exec.Command("tar", "-C", tree, "-xf", archive)))
	for _, name := range []string{"deploy.sh", "need.sh", "overlays/kind/keycloak.yaml", "overlays/kind/realm.json", "base/pgbouncer.yaml"} {
		content, err := os.ReadFile(filepath.Join(c.Root, "infra", "knative", name))
		kit.Must(c.t, err)
		kit.Must(c.t, os.WriteFile(filepath.Join(tree, "infra", "knative", name), content, 0o755))
	}
	return tree
}

// update deploys an older version, and then this one, with its migrations, while clients
// grant that do not try again, and alice follows what she is told.
func (c *cluster) update() {
	c.deploy(c.olderTree(), shortStreams)
	c.roll("from "+older, c.Root, shortStreams)
}

// rollBack deploys the older version on the databases of this one.
func (c *cluster) rollBack() { c.roll("back to "+older, c.olderTree(), shortStreams) }

// ticksAlone deploys this version with a setting that makes PingSources the only ones who
// start the workers.
func (c *cluster) ticksAlone() { c.roll("to ticks without wakes", c.Root, "WAKES=false", shortStreams) }

// roll deploys while clients grant. No request fails, nothing that was answered is lost,
// and everybody is told once; so is alice, who follows a stream that is handed over.
func (c *cluster) roll(what, tree string, settings ...string) {
	c.t.Helper()
	before := c.revisions()
	alice := c.SignIn(c.t, "alice")
	following := alice.Follow(c.t)
	load := c.Load(c.t, deployed.Grants{Clients: 4})
	purchases := c.Load(c.t, deployed.Grants{Clients: 1, To: alice.ID, Every: time.Second})
	ctx, enough := context.WithCancel(c.t.Context())
	defer enough()
	// Transfers are functions in the database, too. What they need may be asleep, and gets 504
	// where all of it wakes at once: updates are of what runs.
	kit.Within(c.t, settles, "a transfer succeeds", func() bool { return c.Example(ctx, "transfer.sh") == nil })
	paid := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := c.Example(ctx, "transfer.sh"); err != nil && ctx.Err() == nil {
				paid <- err
				return
			}
		}
		paid <- nil
	}()
	began := time.Now()
	c.deploy(tree, settings...)
	enough()
	if err := <-paid; err != nil {
		c.t.Errorf("a transfer failed while it was deployed: %v", err)
	}
	bought, failed := purchases.End()
	if failed != nil {
		c.t.Errorf("alice's purchases failed while it was deployed: %.2000v", failed)
	}
	users := c.ended(load)
	services, err := os.ReadFile(filepath.Join(tree, "infra", "knative", "base", "services.yaml"))
	kit.Must(c.t, err)
	for _, name := range c.revisions() {
		function := name[:strings.LastIndex(name, "-")]
		if slices.Contains(before, name) && strings.Contains(string(services), "\n  name: "+function+"\n") {
			c.t.Errorf("%s was there before it was deployed", name)
		}
	}
	following.Until(bought, settles)
	list := "ARRAY['" + strings.Join(bought, "','") + "']"
	if n := c.count("SELECT count(*) FROM notification.notifications WHERE user_id = '" + alice.ID + "' AND payload->>'stock_keeping_unit' = ANY(" + list + ")"); n != len(bought) {
		c.t.Errorf("alice has %d notifications of %d purchases", n, len(bought))
	}
	streams, refused := following.End()
	if streams < 2 {
		c.t.Errorf("alice followed over %d streams; one was to be handed over", streams)
	}
	c.Say("updated %s within %s: %d grants, none failed, each with one notification; %d of alice's over %d streams, of which %d had to be asked for again", what, time.Since(began).Round(time.Second), users, len(bought), streams, refused)
}

// revisions are those that requests go to.
func (c *cluster) revisions() []string {
	c.t.Helper()
	return strings.Fields(c.must("get", "services.serving.knative.dev", "--output", "jsonpath={.items[*].status.latestReadyRevisionName}"))
}

// refuse deploys what cannot run. The version before goes on serving, and what kubectl
// says names the fault.
func (c *cluster) refuse() {
	c.t.Helper()
	load := c.Load(c.t, deployed.Grants{Clients: 4})
	get := func(function, path string) string {
		return c.must("get", "services.serving.knative.dev", function, "--output", "jsonpath={"+path+"}")
	}
	patch := func(function, op, path, value string) {
		c.must("patch", "services.serving.knative.dev", function, "--type", "json", "--patch", fmt.Sprintf(`[{"op": %q, "path": %q, "value": %s}]`, op, path, value))
	}
	const container = "/spec/template/spec/containers/0"
	redis := slices.Index(strings.Fields(get("ticket", ".spec.template.spec.containers[0].env[*].name")), "REDIS_URL")
	faults := []struct{ name, function, op, path, value, ask, said string }{
		{
			"a secret that is missing", "grant", "add", container + "/env/-", `{"name": "MORE", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "url"}}}`,
			"describe pods", `secret "absent" not found`,
		},
		{
			"an image that is missing", "revoke", "replace", container + "/image", `"kind.local/miniserver:absent"`,
			"describe pods", `Failed to pull image "kind.local/miniserver:absent"`,
		},
		{
			"a setting that is none", "transfer", "add", container + "/env/-", `{"name": "LEASE_BATCH", "value": "many"}`,
			"describe pods", `LEASE_BATCH is not a valid int`,
		},
		{
			"a Redis that is not there", "ticket", "replace", fmt.Sprint(container, "/env/", redis), `{"name": "REDIS_URL", "value": "redis://absent:6379"}`,
			"logs --tail=-1 --container function", `REDIS_URL`,
		},
	}
	for _, f := range faults {
		was := get(f.function, ".spec")
		defer func() {
			patch(f.function, "replace", "/spec", was)
			c.must("wait", "--for=condition=Ready", "--timeout=5m", "services.serving.knative.dev", f.function)
		}()
		patch(f.function, f.op, f.path, f.value)
	}
	for _, f := range faults {
		var said string
		kit.Within(c.t, settles, f.said, func() bool {
			said, _ = c.kubectl(append([]string{"--namespace", namespace, "--selector", "serving.knative.dev/service=" + f.function}, strings.Fields(f.ask)...)...)
			return strings.Contains(said, f.said)
		})
		for line := range strings.Lines(said) {
			if strings.Contains(line, f.said) {
				c.Say("  %s: %s", f.name, strings.TrimSpace(line))
				break
			}
		}
	}
	token := c.Token(c.t)
	for _, s := range sleepers {
		c.ask(token, s)
	}
	c.Say("four versions that cannot run: %d grants meanwhile, none failed", c.ended(load))
}
