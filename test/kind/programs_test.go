//go:build cluster

package kind_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// servers names the programs that are built from test/cluster/servers, in the versions of
// its go.mod.
var servers = []struct{ name, command string }{
	{"kubeadm", "k8s.io/kubernetes/cmd/kubeadm"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"serving-activator", "knative.dev/serving/cmd/activator"},
	{"serving-autoscaler", "knative.dev/serving/cmd/autoscaler"},
	{"serving-controller", "knative.dev/serving/cmd/controller"},
	{"serving-queue", "knative.dev/serving/cmd/queue"},
	{"serving-webhook", "knative.dev/serving/cmd/webhook"},
	{"eventing-controller", "knative.dev/eventing/cmd/controller"},
	{"eventing-jobsink", "knative.dev/eventing/cmd/jobsink"},
	{"eventing-mtping", "knative.dev/eventing/cmd/mtping"},
	{"eventing-requestreply", "knative.dev/eventing/cmd/requestreply"},
	{"eventing-webhook", "knative.dev/eventing/cmd/webhook"},
}

// released names the programs that are built as their modules were released.
var released = []struct{ name, module, command string }{
	{"kind", "sigs.k8s.io/kind@v0.32.0", "."},
	{"ko", "github.com/google/ko@v0.18.0", "."},
	{"crane", "github.com/google/go-containerregistry@v0.20.6", "./cmd/crane"},
	{"coredns", "github.com/coredns/coredns@v1.13.1", "."},
	{"local-path-provisioner", "github.com/rancher/local-path-provisioner@v0.0.30", "."},
	{"kourier", "knative.dev/net-kourier@v0.48.0", "./cmd/kourier"},
	{"host-local", "github.com/containernetworking/plugins@v1.9.1", "./plugins/ipam/host-local"},
	{"loopback", "github.com/containernetworking/plugins@v1.9.1", "./plugins/main/loopback"},
	{"ptp", "github.com/containernetworking/plugins@v1.9.1", "./plugins/main/ptp"},
	{"portmap", "github.com/containernetworking/plugins@v1.9.1", "./plugins/meta/portmap"},
}

// build builds all programs that are not there in these versions: most of half an hour of
// two cores the first time.
func (c *cluster) build(ctx context.Context) error {
	version, err := c.versions()
	if err != nil {
		return err
	}
	stamp := c.file("bin", ".built")
	if built, err := os.ReadFile(stamp); err == nil && string(built) == version {
		return nil
	}
	c.Say("building %d programs of Kubernetes and Knative (once, about 20 minutes)", len(servers)+len(released))
	kubernetes, err := c.goList(ctx, "k8s.io/kubernetes/cmd/kubelet", "Version")
	if err != nil {
		return err
	}
	flags := "-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetes +
		" -X k8s.io/component-base/version.gitCommit= -X k8s.io/component-base/version.gitTreeState=clean"
	for _, p := range servers {
		if err := c.compile(ctx, c.servers(), p.name, p.command, flags); err != nil {
			return err
		}
	}
	for _, p := range released {
		dir, err := download(ctx, p.module)
		if err != nil {
			return err
		}
		if err := c.compile(ctx, dir, p.name, p.command, "-s -w"); err != nil {
			return err
		}
	}
	return os.WriteFile(stamp, []byte(version), 0o644)
}

func (c *cluster) compile(ctx context.Context, dir, name, command, flags string) error {
	began := time.Now()
	build := exec.CommandContext(ctx, "nice", "go", "build", "-mod=readonly", "-ldflags="+flags, "-o", c.file("bin", name), command)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", command, err, said)
	}
	if took := time.Since(began); took > 5*time.Second {
		c.Say("  %s %s", name, took.Round(time.Second))
	}
	return nil
}

func (c *cluster) servers() string { return filepath.Join(c.Root, "test", "cluster", "servers") }

// versions is a hash of everything that decides what is built.
func (c *cluster) versions() (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), servers, released)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(c.servers(), name))
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil)), nil
}

// goList returns one field of the module that a package of servers belongs to.
func (c *cluster) goList(ctx context.Context, of, field string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Module."+field+"}}", of)
	list.Dir, list.Stderr = c.servers(), os.Stderr
	printed, err := list.Output()
	return string(bytes.TrimSpace(printed)), err
}

// download returns the folder of a module.
func download(ctx context.Context, module string) (string, error) {
	printed, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	var got struct{ Dir, Error string }
	if err := json.Unmarshal(printed, &got); err != nil {
		return "", fmt.Errorf("download %s: %w: %s", module, err, printed)
	}
	if err != nil {
		return "", fmt.Errorf("download %s: %s", module, got.Error)
	}
	return got.Dir, nil
}

// releasedModule returns the folder of the module that a program is built from.
func releasedModule(ctx context.Context, name string) (string, error) {
	for _, p := range released {
		if p.name == name {
			return download(ctx, p.module)
		}
	}
	return "", fmt.Errorf("there is no %s", strings.ToUpper(name))
}
