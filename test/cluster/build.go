package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The programs of the cluster, by the names of their files, and the commands that they
// are built from, in the versions of servers/go.mod.
var programs = []struct{ name, command string }{
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"serving-controller", "knative.dev/serving/cmd/controller"},
	{"serving-webhook", "knative.dev/serving/cmd/webhook"},
	{"eventing-controller", "knative.dev/eventing/cmd/controller"},
	{"eventing-webhook", "knative.dev/eventing/cmd/webhook"},
	{"eventing-mtping", "knative.dev/eventing/cmd/mtping"},
}

// changed are the replacements in Knative's code: in a cluster each process has a network
// of its own, here five share one. Probes are served at a port from the environment
// instead of 8080, and nothing listens beyond 127.0.0.1.
var changed = []struct{ file, old, new string }{
	{"injection/health_check.go", `const HealthCheckDefaultPort = 8080`, `var HealthCheckDefaultPort, _ = strconv.Atoi(os.Getenv("PROBES_PORT"))`},
	{"injection/health_check.go", `"strconv"`, "\"os\"\n\t\"strconv\""},
	{"injection/health_check.go", `Addr: ":" +`, `Addr: "127.0.0.1:" +`},
	{"observability/runtime/pprof.go", `":" + port`, `"127.0.0.1:" + port`},
	{"webhook/webhook.go", `fmt.Sprint(":", wh.Options.Port)`, `fmt.Sprint("127.0.0.1:", wh.Options.Port)`},
}

// Build builds the programs into dir, unless they are there in the same versions; that
// takes a quarter of an hour of one core the first time, most of it Kubernetes. servers
// is the folder of their go.mod, dir an absolute path. It prints a line of progress for
// each program.
func Build(ctx context.Context, servers, dir string, progress io.Writer) error {
	version, err := versionOf(servers)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stamp := filepath.Join(dir, ".built")
	if built, err := os.ReadFile(stamp); err == nil && string(built) == version {
		return nil
	}
	modfile, err := changeIn(ctx, servers, dir)
	if err != nil {
		return err
	}
	kubernetes, err := module(ctx, servers, "k8s.io/kubernetes/cmd/kube-apiserver", "Version")
	if err != nil {
		return err
	}
	// A release is linked with its version; Knative refuses to work without one.
	released := "-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetes +
		" -X k8s.io/component-base/version.gitCommit= -X k8s.io/component-base/version.gitTreeState=clean"
	fmt.Fprintf(progress, "building %d programs of Kubernetes and Knative (once, about 15 minutes of one core)\n", len(programs))
	for _, p := range programs {
		began := time.Now()
		// Others use the machine too: one compiler at a time, at low priority.
		build := exec.CommandContext(ctx, "nice", "-n", "15", "go", "build", "-p", "1", "-ldflags="+released,
			"-modfile", modfile, "-o", filepath.Join(dir, p.name), p.command)
		build.Dir = servers
		if printed, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", p.command, err, printed)
		}
		fmt.Fprintf(progress, "  %s %s\n", p.name, time.Since(began).Round(time.Second))
	}
	return os.WriteFile(stamp, []byte(version), 0o644)
}

// versionOf is a hash of everything that decides what is built.
func versionOf(servers string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), programs, changed)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(servers, name))
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil)), nil
}

// changeIn copies knative.dev/pkg, applies changed, and writes a go.mod that uses the
// copy.
func changeIn(ctx context.Context, servers, dir string) (string, error) {
	from, err := ModuleOf(ctx, servers, "knative.dev/pkg/injection")
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "changed")
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	if err := os.CopyFS(filepath.Join(to, "pkg"), os.DirFS(from)); err != nil {
		return "", err
	}
	for _, c := range changed {
		path := filepath.Join(to, "pkg", c.file)
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if n := bytes.Count(content, []byte(c.old)); n != 1 {
			return "", fmt.Errorf("%s of knative.dev/pkg has %q %d times, not once", c.file, c.old, n)
		}
		if err := os.WriteFile(path, bytes.Replace(content, []byte(c.old), []byte(c.new), 1), 0o644); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(servers, name))
		if err != nil {
			return "", err
		}
		if name == "go.mod" {
			content = fmt.Appendf(content, "\nreplace knative.dev/pkg => %s\n", filepath.Join(to, "pkg"))
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(to, "go.mod"), nil
}

// ModuleOf returns the folder of the module that a package belongs to, in the version of
// the go.mod in servers.
func ModuleOf(ctx context.Context, servers, of string) (string, error) {
	return module(ctx, servers, of, "Dir")
}

// module returns one field of go list about a package's module.
func module(ctx context.Context, servers, of, what string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Module."+what+"}}", of)
	command.Dir, command.Stderr = servers, os.Stderr
	printed, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", of, err)
	}
	return strings.TrimSpace(string(printed)), nil
}
