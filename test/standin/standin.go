// Package standin builds images in a Docker engine that has no registry to pull from: each
// stands for a published image, under its name, and does what compose.yaml and the
// manifests use of it. They are made of Debian's packages and of Go modules.
package standin

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/docker"
	"github.com/miniserversystem/miniserver/infra/dev/keycloak"
)

// dockerfiles has a folder for each image, with the last part of the image's name.
//
//go:embed */Dockerfile */entrypoint
var dockerfiles embed.FS

const (
	// Base is what all others are made of.
	Base = "standin/debian"

	suite        = "bookworm"
	certificates = "etc/ssl/certs/ca-certificates.crt"
)

// Builder builds stand-ins.
type Builder struct {
	Engine *docker.Engine
	// Root is the repository; its .local keeps what is downloaded.
	Root string
	// Progress gets a line for each image.
	Progress io.Writer
}

// Build makes an image for each name. Those that are there and have not changed take no
// time. The first time takes minutes, and downloads about 400 MB.
func (b Builder) Build(ctx context.Context, names ...string) error {
	scratch, err := os.MkdirTemp("", "standin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := b.debian(ctx, scratch); err != nil {
		return err
	}
	for _, name := range names {
		began := time.Now()
		repository, _, _ := strings.Cut(name, ":")
		if err := b.image(ctx, name, path.Base(repository), filepath.Join(scratch, path.Base(repository))); err != nil {
			return fmt.Errorf("a stand-in for %s: %w", name, err)
		}
		fmt.Fprintf(b.Progress, "  %s %s\n", name, time.Since(began).Round(time.Second))
	}
	return nil
}

// debian makes the image that the others are made of, with the authorities that this
// machine trusts, so that what it can reach can be reached from there.
func (b Builder) debian(ctx context.Context, scratch string) error {
	if b.Engine.Command(ctx, "image", "inspect", Base).Run() == nil {
		return nil
	}
	began, root := time.Now(), filepath.Join(scratch, "debian")
	if err := Run(b.Engine.Debootstrap(ctx, suite, root)); err != nil {
		return err
	}
	if trusted, err := os.ReadFile("/" + certificates); err == nil {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(certificates)), 0o755),
			os.WriteFile(filepath.Join(root, certificates), trusted, 0o644)); err != nil {
			return err
		}
	}
	archive := filepath.Join(scratch, "debian.tar")
	if err := Run(exec.CommandContext(ctx, "tar", "-C", root, "--exclude=./var/cache/apt/archives/*.deb", "-cf", archive, ".")); err != nil {
		return err
	}
	if err := Run(b.Engine.Command(ctx, "import", archive, Base)); err != nil {
		return err
	}
	fmt.Fprintf(b.Progress, "  %s %s\n", Base, time.Since(began).Round(time.Second))
	return nil
}

func (b Builder) image(ctx context.Context, name, of, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := dockerfiles.ReadDir(of)
	if err != nil {
		return fmt.Errorf("there is none: %w", err)
	}
	for _, entry := range entries {
		content, err := dockerfiles.ReadFile(path.Join(of, entry.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, entry.Name()), content, 0o755); err != nil {
			return err
		}
	}
	content := dir
	switch of {
	case "golang":
		root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("go env GOROOT: %w", err)
		}
		content = strings.TrimSpace(string(root))
	case "keycloak":
		if content, err = keycloak.Fetch(ctx, keycloak.Options{Dir: filepath.Join(b.Root, ".local", "keycloak"), Out: b.Progress}); err != nil {
			return err
		}
	case "nats":
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "nats-server"), "github.com/nats-io/nats-server/v2")
		build.Dir, build.Env = b.Root, append(os.Environ(), "CGO_ENABLED=0")
		if err := Run(build); err != nil {
			return err
		}
	}
	return Run(b.Engine.Command(ctx, "build", "--quiet", "--tag", name, "--file", filepath.Join(dir, "Dockerfile"), content))
}

// Program makes an image of one program, with packages of Debian's beside it, that runs as
// user, or root if that is empty.
func (b Builder) Program(ctx context.Context, name, program, user string, packages ...string) error {
	dir, err := os.MkdirTemp(filepath.Dir(program), "image-") // where the program can be linked
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := "FROM " + Base + "\n"
	if len(packages) > 0 {
		file += "RUN apt-get update && apt-get install -y --no-install-recommends " + strings.Join(packages, " ") + " && rm -rf /var/lib/apt/lists/*\n"
	}
	as := filepath.Base(program)
	file += fmt.Sprintf("COPY %s /usr/local/bin/\nUSER %s\nENTRYPOINT [\"/usr/local/bin/%s\"]\n", as, cmp.Or(user, "0"), as)
	if err := errors.Join(os.Link(program, filepath.Join(dir, as)), os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(file), 0o644)); err != nil {
		return err
	}
	return Run(b.Engine.Command(ctx, "build", "--quiet", "--tag", name, dir))
}

// Run runs a command; its error has the end of what it printed.
func Run(command *exec.Cmd) error {
	said, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, said[max(0, len(said)-6000):])
	}
	return nil
}
