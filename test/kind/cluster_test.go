//go:build cluster

// A cluster as kind makes it, in a Docker engine of the test's own, with Knative and our
// overlay, by the scripts that people run: make kind-up, kind-deploy and kind-down.
//
//	go test -tags cluster -timeout 90m -v ./test/kind
//
// It needs root and the ports of infra/knative/kind.yaml. What others pull from registries
// is built here: Kubernetes, Knative, Envoy and the stores (test/standin). There is no
// module of the JetStream channel, so the overlay runs without it.
package kind_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
	"github.com/miniserversystem/miniserver/test/standin"
)

// tries is how often each function is woken from zero.
const tries = 10

// scriptWithin bounds one of the scripts, which have bounds of their own, and kubectlWithin
// a command.
const (
	scriptWithin  = 30 * time.Minute
	kubectlWithin = 10 * time.Minute
)

// cluster is a kind cluster.
type cluster struct {
	deployed.System
	T       *testing.T
	t       *testing.T // the scene's
	version string     // of Kubernetes
	base    string     // of the image that ko builds
	runs    bool       // something is deployed
}

// file is one of those that are kept for the next run.
func (c *cluster) file(parts ...string) string {
	return filepath.Join(append([]string{c.Root, ".local", "kind"}, parts...)...)
}

func (c *cluster) docker(ctx context.Context, arguments ...string) error {
	return standin.Run(c.Engine.Command(ctx, arguments...))
}

// environment is that of the scripts.
func (c *cluster) environment(more ...string) []string {
	environment := c.Engine.Environment()
	for i, variable := range environment {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			environment[i] = "PATH=" + c.file("bin") + ":" + path + ":" + os.Getenv("PATH")
		}
	}
	return append(append(environment, "KUBECONFIG="+c.file("kubeconfig")), more...)
}

// script runs one of infra/knative's in a tree of ours; its error has what it printed.
func (c *cluster) script(tree, name string, environment ...string) error {
	command := exec.Command(filepath.Join(tree, "infra", "knative", name))
	command.Env = c.environment(environment...)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	running, err := proc.Launch(command) // it ends with this process
	if err != nil {
		return err
	}
	select {
	case <-running.Ended:
		err = running.Err()
	case <-time.After(scriptWithin):
		err = errors.Join(fmt.Errorf("it runs for %s", scriptWithin), running.End(proc.Step{Signal: syscall.SIGKILL, Wait: time.Minute}))
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, printed.Bytes()[max(0, printed.Len()-8000):])
	}
	return nil
}

func (c *cluster) kubectl(arguments ...string) (string, error) {
	return c.kubectlWith("", arguments...)
}

// kubectlWith runs kubectl with text on its standard input.
func (c *cluster) kubectlWith(input string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), kubectlWithin)
	defer cancel()
	command := proc.Command(ctx, c.file("bin", "kubectl"), append([]string{"--context", "kind-miniserver"}, arguments...)...)
	command.Env, command.Stdin = c.environment(), strings.NewReader(input)
	printed, err := command.CombinedOutput()
	return string(printed), err
}

// up makes the cluster.
func up(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, t: t, System: deployed.Start(t, "http://gateway.miniserver.localhost:8080", "http://keycloak.localhost:8082/realms/miniserver")}
	kit.Must(t, os.MkdirAll(c.file("bin"), 0o755))
	kit.Must(t, c.build(t.Context()))
	var err error
	c.version, err = c.goList(t.Context(), "k8s.io/kubernetes/cmd/kubelet", "Version")
	kit.Must(t, err)
	paths, err := c.writeReleases(t.Context())
	kit.Must(t, err)
	names, err := c.images(t.Context(), paths)
	kit.Must(t, err)
	kit.Must(t, c.script(c.Root, "down.sh")) // a cluster that an earlier run left
	image, err := c.nodeImage(t.Context(), names)
	kit.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.explain()
		}
		kit.Must(t, c.script(c.Root, "down.sh"))
	})
	kit.Must(t, c.configure())
	c.Say("make kind-up")
	kit.Must(t, c.script(c.Root, "up.sh", "KIND_CONFIG="+c.file("kind.yaml"), "KIND_NODE_IMAGE="+image, "KNATIVE_RELEASES="+c.file("releases"),
		"KNATIVE_SERVING="+release, "KNATIVE_EVENTING="+release, "KNATIVE_KOURIER="+release, "KNATIVE_NATSS=none"))
	c.Say("Knative is there")
	return c
}

// configure writes kind's configuration: ours, and what this machine needs.
func (c *cluster) configure() error {
	ours, err := os.ReadFile(filepath.Join(c.Root, "infra", "knative", "kind.yaml"))
	if err != nil {
		return err
	}
	more, err := os.ReadFile(filepath.Join(c.Root, "test", "kind", "node", "config.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(c.file("kind.yaml"), append(ours, more...), 0o644)
}

// withoutChannels is our overlay without the JetStream channels, which wake consumers
// sooner; ticks come in any case. Functions that answer people may grow to five, and ask
// for less CPU than this machine is shared by.
const withoutChannels = `patches:
  - target: {kind: NatsJetStreamChannel}
    patch: "$patch: delete\nkind: NatsJetStreamChannel\nmetadata: {name: any}"
  - target: {kind: Subscription}
    patch: "$patch: delete\nkind: Subscription\nmetadata: {name: any}"
  - target: {group: serving.knative.dev, kind: Service, labelSelector: app.kubernetes.io/component=front}
    patch: '[{"op": "replace", "path": "/spec/template/metadata/annotations/autoscaling.knative.dev~1max-scale", "value": "5"}]'
  - target: {group: serving.knative.dev, kind: Service}
    patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "5m"}]'
`

// deploy is make kind-deploy in a tree of ours, with more settings.
func (c *cluster) deploy(tree string, settings ...string) {
	c.t.Helper()
	overlay := c.file("overlay")
	kit.Must(c.t, os.MkdirAll(overlay, 0o755))
	base, err := filepath.Rel(overlay, filepath.Join(tree, "infra", "knative", "overlays", "kind"))
	kit.Must(c.t, err)
	content := "resources: [" + base + "]\n" + withoutChannels
	if len(settings) > 0 {
		content += "configMapGenerator: [{name: settings, behavior: merge, literals: [" + strings.Join(settings, ", ") + "]}]\nnamespace: " + namespace + "\n"
	}
	kit.Must(c.t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(content), 0o644))
	c.Say("make kind-deploy")
	kit.Must(c.t, c.script(tree, "deploy.sh", "KIND_OVERLAY="+overlay, "KO_DEFAULTBASEIMAGE="+c.base, "GOFLAGS=-buildvcs=false",
		"GOMODCACHE="+c.goEnv("GOMODCACHE"), "GOCACHE="+c.goEnv("GOCACHE")))
	c.runs = true
	c.Say("everything is deployed")
}

func (c *cluster) goEnv(name string) string {
	c.t.Helper()
	value, err := exec.Command("go", "env", name).Output()
	kit.Must(c.t, err)
	return strings.TrimSpace(string(value))
}

// registry starts one on loopback with the image that ko builds ours on, and returns its
// name.
func (c *cluster) registry() string {
	c.t.Helper()
	const static = "standin/static-debian12:nonroot"
	kit.Must(c.t, standin.Builder{Engine: c.Engine, Root: c.Root, Progress: os.Stderr}.Build(c.t.Context(), static))
	port, err := proc.FreePort(0)
	kit.Must(c.t, err)
	archive := c.file("base.tar")
	c.t.Cleanup(func() { _ = os.Remove(archive) })
	kit.Must(c.t, c.docker(c.t.Context(), "save", "--output", archive, static))
	program.Start(c.t, exec.Command(c.file("bin", "crane"), "registry", "serve", "--address", proc.Address(port)))
	name := proc.Address(port) + "/static:nonroot"
	kit.Eventually(c.t, "the registry has the base image", func() bool {
		return standin.Run(exec.Command(c.file("bin", "crane"), "push", archive, name)) == nil
	})
	return name
}

// explain prints what does not run, and why.
func (c *cluster) explain() {
	for _, arguments := range [][]string{
		{"get", "nodes,pods,ksvc", "--all-namespaces", "--output", "wide"},
		{"get", "events", "--all-namespaces", "--field-selector", "type=Warning", "--sort-by", "lastTimestamp"},
	} {
		printed, _ := c.kubectl(arguments...)
		c.t.Logf("kubectl %s:\n%s", strings.Join(arguments, " "), printed[max(0, len(printed)-12000):])
	}
}

const (
	namespace = "miniserver"
	node      = "miniserver-control-plane"
	// settles is how long what was asked for may take on a busy machine.
	settles = 5 * time.Minute
)

// must runs kubectl in our namespace.
func (c *cluster) must(arguments ...string) string {
	c.t.Helper()
	printed, err := c.kubectl(append([]string{"--namespace", namespace}, arguments...)...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, printed)
	}
	return strings.TrimSpace(printed)
}

// count asks Postgres, by standard input because a query may be longer than a command.
func (c *cluster) count(query string) int {
	c.t.Helper()
	printed, err := c.kubectlWith(query, "--namespace", namespace, "exec", "--stdin", "postgres-0", "--", "psql", "-U", "miniserver", "-At")
	if err != nil {
		c.t.Fatalf("psql: %v\n%s", err, printed)
	}
	n, err := strconv.Atoi(strings.TrimSpace(printed))
	kit.Must(c.t, err)
	return n
}

// pods returns how many of a function's there are.
func (c *cluster) pods(function string) int {
	c.t.Helper()
	return len(strings.Fields(c.must("get", "pods", "--selector", "serving.knative.dev/service="+function, "--output", "name")))
}

// told checks that each grant of users happened once, and waits until each has the one
// notification, sent.
func (c *cluster) told(users []string) {
	c.t.Helper()
	list := "ARRAY['" + strings.Join(users, "','") + "']"
	for what, query := range map[string]string{
		"entitlements": "SELECT count(*) FROM entitlement.entitlements WHERE version = 1 AND user_id = ANY(" + list + ")",
		"events":       "SELECT count(*) FROM entitlement.outbox_events WHERE split_part(aggregate_key, '/', 1) = ANY(" + list + ")",
	} {
		if n := c.count(query); n != len(users) {
			c.t.Errorf("there are %d %s of %d answered grants", n, what, len(users))
		}
	}
	kit.Within(c.t, settles, "everybody is told", func() bool {
		return c.count("SELECT count(*) FROM notification.notifications WHERE status = 'SENT' AND user_id = ANY("+list+")") == len(users)
	})
}

// ended ends a load of which nothing failed, checks what it was answered, and returns how
// many grants that was.
func (c *cluster) ended(load *deployed.Load) int {
	c.t.Helper()
	users, failed := load.End()
	if failed != nil {
		c.t.Fatalf("grants failed: %.2000v", failed)
	}
	c.told(users)
	return len(users)
}

// paste runs the commands by which docs/platforms.md looks into the cluster.
func (c *cluster) paste() {
	c.t.Helper()
	page, err := os.ReadFile(filepath.Join(c.Root, "docs", "platforms.md"))
	kit.Must(c.t, err)
	commands := regexp.MustCompile(`(?m)^kubectl --context kind-miniserver .*$`).FindAllString(string(page), -1)
	if len(commands) < 3 {
		c.t.Fatalf("found %q", commands)
	}
	for _, line := range commands {
		command := exec.Command("bash", "-c", strings.Replace(line, ",natsjetstreamchannel", "", 1)) // which is not there
		command.Env = c.environment()
		if printed, err := command.CombinedOutput(); err != nil {
			c.t.Errorf("%s: %v\n%s", line, err, printed)
		}
	}
	c.Say("%d commands of the walk-through", len(commands))
}

// Everything that a user of kind does, and what the system then does in the cluster. Each
// scene can be played alone (-run TestCluster/drained), and needs no other.
func TestCluster(t *testing.T) {
	c := up(t)
	c.base = c.registry()
	play := func(name string, scene func()) {
		t.Run(name, func(t *testing.T) {
			c.t = t
			defer func() { c.t = c.T }()
			scene()
		})
	}
	play("updated", c.update)
	if !c.runs {
		c.deploy(c.Root, shortStreams)
	}
	play("woken", func() { c.wake(tries) })
	play("pasted", c.paste)
	play("connected", func() { c.cut(false) })
	play("strangers", c.strangers)
	c.enforce()
	play("cut", func() { c.cut(true) })
	play("examples", func() { c.Examples(c.t) })
	play("browser", func() { c.Browser(c.t) })
	play("crowded", c.crowd)
	play("costs", c.costs)
	play("refused", c.refuse)
	play("deleted", c.disturb)
	play("drained", c.drain)
	play("ticked", c.ticksAlone)
	play("rolled back", c.rollBack)
	play("still cut", func() { c.cut(true) })
}
