package image_test

import (
	"archive/tar"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/miniserversystem/miniserver/test/kit"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// hosts is what a container reads as /etc/hosts.
const hosts = "127.0.0.1 localhost keycloak.localhost\n"

// bundle unpacks the image into a new directory as an engine does, for a service of
// compose.yaml: the image's user and entrypoint; the service's arguments and environment,
// with the servers of the test in place of its own; a read-only root, no capabilities, no
// new privileges, and its own namespaces except for the network, in which the servers of
// the tests are.
func bundle(t testing.TB, service string, instead map[string]string) string {
	t.Helper()
	img := image(t)
	arguments, environment := composed(t, service, instead)
	dir := t.TempDir()
	root := filepath.Join(dir, "rootfs")
	kit.Must(t, os.Mkdir(root, 0o755))
	for header, content := range files(t, img) {
		path := filepath.Join(root, filepath.Join("/", header.Name))
		kit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if header.Typeflag == tar.TypeDir {
			kit.Must(t, os.MkdirAll(path, 0o755))
			continue
		}
		kit.Must(t, os.WriteFile(path, content, header.FileInfo().Mode().Perm()))
	}
	// What engines make in every container.
	for _, folder := range []string{"proc", "dev", "etc"} {
		kit.Must(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	kit.Must(t, os.WriteFile(filepath.Join(root, "etc", "hosts"), []byte(hosts), 0o644))
	config, err := img.ConfigFile()
	kit.Must(t, err)
	content, err := json.Marshal(spec(t, config, arguments, environment))
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "config.json"), content, 0o644))
	return dir
}

func spec(t testing.TB, config *v1.ConfigFile, arguments []string, environment map[string]string) specs.Spec {
	t.Helper()
	user, group, _ := strings.Cut(config.Config.User, ":")
	uid, err := strconv.ParseUint(user, 10, 32)
	kit.Must(t, err)
	gid, err := strconv.ParseUint(group, 10, 32)
	kit.Must(t, err)
	process := &specs.Process{
		User: specs.User{UID: uint32(uid), GID: uint32(gid)},
		Args: append(slices.Clone(config.Config.Entrypoint), arguments...), Env: config.Config.Env, Cwd: "/",
		Capabilities: &specs.LinuxCapabilities{}, NoNewPrivileges: true,
	}
	for name, value := range environment {
		process.Env = append(process.Env, name+"="+value)
	}
	return specs.Spec{
		Version: "1.0.2", Process: process,
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Hostname: "container",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			},
			Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			MaskedPaths:   []string{"/proc/kcore", "/proc/keys", "/proc/timer_list"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}
